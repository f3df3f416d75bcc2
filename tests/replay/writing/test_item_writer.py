"""The writer of items: how often it writes one, when it waits for the server, and what it refuses."""

import numpy as np
import pytest
import reverb
import timestep_streams
from reading import read_all

from callboard.replay import ItemWriter, SequenceFormat, WindowFormat, WindowWriter
from callboard.transitions import valid_transitions

ENVS, LENGTH = 3, 2
LAYOUT = timestep_streams.layout(ENVS)
FORMAT = SequenceFormat(LAYOUT, LENGTH)
ONE_STEP = WindowFormat(timestep_streams.layout(ENVS), length=1)


def queue(name="items", size=1000, signature=None):
    return reverb.Table.queue(name, size, signature=signature or FORMAT.signature())


@pytest.mark.parametrize("period", [1, 3])
def test_an_item_begins_every_period(serve, period):
    writer = ItemWriter(serve([queue()]), FORMAT, "items", period)
    written = []
    for record in timestep_streams.stream(ENVS, 8):
        writer.append(record)
        written.append(writer.items_written // ENVS)
    # An item needs its last observation: the first one is complete at timestep 2.
    assert written == [len(range(0, max(0, timestep - LENGTH + 1), period)) for timestep in range(8)]
    writer.close()


def test_priorities_are_one_unless_they_are_computed(serve):
    replay = serve([queue("ones"), queue("computed")])
    for table, priority in (("ones", None), ("computed", lambda record: 2 + record.extras["q"][-1, :, 0])):
        writer = ItemWriter(replay, FORMAT, table, priority=priority)
        for timestep, record in enumerate(timestep_streams.stream(ENVS, LENGTH + 1)):
            record.extras["q"][:, 0] = 10 * timestep + np.arange(ENVS)
            writer.append(record)
        writer.close()
    _, info = read_all(replay, "ones", FORMAT.signature())
    assert info.priority.numpy().tolist() == [1, 1, 1]
    _, info = read_all(replay, "computed", FORMAT.signature())
    assert sorted(info.priority.numpy().tolist()) == [22, 23, 24]


@pytest.mark.parametrize("kind, writer_kind", [(SequenceFormat, ItemWriter), (WindowFormat, WindowWriter)])
def test_the_discounted_return_of_the_episode_so_far_is_stored_where_it_is_wanted(serve, kind, writer_kind):
    item_format = kind(LAYOUT, LENGTH, stack=2, returns_discount=0.9)
    assert item_format.signature().rows.shape[1] == kind(LAYOUT, LENGTH).signature().rows.shape[1] + 4
    replay = serve([queue(signature=item_format.signature())])
    writer = writer_kind(replay, item_format, "items")
    expected, before = {}, np.zeros(ENVS)
    records = timestep_streams.stream(ENVS, 60)
    for timestep, record in enumerate(records):
        before = np.where(record.first, 0.0, 0.9 * before) + record.reward
        expected |= {(env, timestep): value for env, value in enumerate(before)}
        writer.append(record)
    writer.close()
    items, _ = read_all(replay, "items", item_format.signature())
    sample = item_format.read(items)
    found = sample.discounted_return.numpy()
    assert found.shape == sample.record.reward.shape and found.shape[1] > 50
    assert sample.record.first.numpy()[1:].any()
    record = sample.record
    valid = valid_transitions(record.first.numpy(), record.last.numpy(), record.discount.numpy())
    body = sample.record.observation["body"].numpy().astype(int)
    for row, item in zip(*np.nonzero(valid), strict=True):
        np.testing.assert_allclose(found[row, item], expected[tuple(body[row, item])], rtol=1e-5, atol=1e-6)


class EvenOnly(ItemWriter):
    """Leaves out the items of the environment in the middle."""

    def chosen(self, record):
        return np.arange(ENVS) % 2 == 0


def test_a_writer_may_choose_among_the_items(serve):
    replay = serve([queue()])
    writer = EvenOnly(replay, FORMAT, "items")
    for record in timestep_streams.stream(ENVS, LENGTH + 1):
        writer.append(record)
    writer.close()
    assert writer.items_written == 2
    items, _ = read_all(replay, "items", FORMAT.signature())
    assert sorted(FORMAT.read(items).record.observation["body"][0, :, 0].numpy().tolist()) == [0, 2]


def test_a_writer_that_starts_within_an_episode_waits_for_a_whole_stack(serve):
    stacked = SequenceFormat(LAYOUT, LENGTH, stack=3)
    writer = ItemWriter(serve([queue(signature=stacked.signature())]), stacked, "items")
    written = []
    for record in timestep_streams.stream(ENVS, 6, longest=1000, first=False):
        never = np.zeros(ENVS, bool)
        writer.append(record._replace(first=never, last=never))
        written.append(writer.items_written // ENVS)
    assert written == [0, 0, 0, 0, 1, 2]
    writer.close()


def test_wrong_shapes_are_refused_by_name(serve):
    replay = serve([reverb.Table.queue("windows", 100, signature=ONE_STEP.signature())])
    writer = WindowWriter(replay, ONE_STEP, "windows")
    (record,) = timestep_streams.stream(ENVS, 1)
    record.observation["body"] = np.zeros((ENVS, 7), np.float32)
    with pytest.raises(ValueError, match=r"observation\.body.*\(7,\).*\(2,\)"):
        writer.append(record)


def test_close_gives_up_on_a_server_that_is_away(serve):
    """Bounded, or a node could not be stopped during an outage."""
    table = reverb.Table(
        "windows",
        reverb.selectors.Uniform(),
        reverb.selectors.Fifo(),
        100,
        reverb.rate_limiters.SampleToInsertRatio(1.0, 1, (0.0, 4.0)),
        signature=ONE_STEP.signature(),
    )
    replay = serve([table])
    writer = WindowWriter(replay, ONE_STEP, "windows")
    records = iter(timestep_streams.stream(ENVS, 500, longest=600))
    # Only four items fit before somebody samples.
    for record in records:
        writer.append(record)
        if not writer.ready(0.2):
            break
    else:
        pytest.fail("the writer was never held back")
    writer.close()
    assert table.info.current_size == 4
