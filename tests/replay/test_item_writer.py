"""The writer of items: how often it writes one, when it waits for the server, and what it refuses."""

import numpy as np
import pytest
import reverb
import timestep_streams
from reading import read_all

from callboard.replay import ItemWriter, SequenceFormat, WindowFormat, WindowWriter

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
