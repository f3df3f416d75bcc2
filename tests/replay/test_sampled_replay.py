"""What replays with sampling share: their table, its limits, and batches for every replica."""

import pytest
import tensorflow as tf
import timestep_streams
import tree
from reading import read_batches

from callboard.errors import CallboardError
from callboard.replay import TransitionReplay
from callboard.settings.replay_settings import ReplaySettings

ENVS = 4
LAYOUT = timestep_streams.layout(ENVS)
LIMITS = ReplaySettings(size=1000, min_size=8, samples_per_insert=4.0)


def replay_of(layout=LAYOUT, limits=LIMITS, batch_size=8, **settings):
    return TransitionReplay(layout, limits, batch_size, **settings)


def test_the_table_has_the_limits_the_exponent_and_the_format_of_the_items():
    replay = replay_of(LAYOUT._replace(shards=2), priority_exponent=0.6)
    (table,) = replay.tables()
    info = table.info
    assert (info.name, info.max_size, info.rate_limiter_info.min_size_to_sample) == ("replay", 500, 4)
    assert info.sampler_options.prioritized.priority_exponent == 0.6
    assert tree.flatten(info.signature) == tree.flatten(replay.item_format.signature())
    (even,) = replay_of().tables()
    assert even.info.sampler_options.uniform


def test_a_call_that_samples_several_batches_has_a_larger_buffer():
    def buffer(**settings):
        (table,) = replay_of(**settings).tables()
        limiter = table.info.rate_limiter_info
        return (limiter.max_diff - limiter.min_diff) / 2

    assert buffer(updates_per_call=3) - buffer() == 2 * 8


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(batch_size=2000), "a replay of 1000 items in 1 shard"),
        (dict(layout=LAYOUT._replace(replicas=3)), "cannot be shared by 3 learner devices"),
        (dict(layout=LAYOUT._replace(record=None, max_steps=8)), "learning would never begin"),
        (dict(n_step=150, layout=LAYOUT._replace(record=None, max_steps=200)), "make 0 windows of 150 .* agent.n_step"),
    ],
)
def test_limits_are_checked_without_record_and_state(settings, message):
    replay_of(LAYOUT._replace(record=None)).check()
    with pytest.raises(CallboardError, match=message) as caught:
        replay_of(**settings).check()
    assert "\n" not in str(caught.value)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("updates", [1, 3])
def test_a_replica_gets_its_share_of_each_batch(serve, updates):
    replay = replay_of(LAYOUT._replace(replicas=2), updates_per_call=updates)
    handle = serve(replay.tables())
    writer = replay.writer(handle, 0)
    # No episode ends: a window begins at every timestep.
    for record in timestep_streams.stream(ENVS, 5):
        record.first[:] = record.last[:] = False
        record.discount[:] = 1.0
        writer.append(record)
    assert writer.ready(10.0, max_pending=0)
    found = replay.dataset(handle, tf.distribute.InputContext())
    assert (found.table, found.items_per_batch) == ("replay", updates * 8)
    (sample,) = read_batches(found.dataset, 1)
    leading = () if updates == 1 else (updates,)
    assert sample.record.reward.shape == (*leading, 1, 4) and sample.info.key.shape == (*leading, 4)
    writer.close()
