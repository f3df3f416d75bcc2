"""A fixed share of each batch from recorded episodes: tables, batches, priorities, and what is refused."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import timestep_streams
from reading import read_batches

from callboard.data import Priorities
from callboard.errors import CallboardError
from callboard.replay import PriorityUpdater, SequenceReplay, TransitionReplay
from callboard.settings.replay_settings import ReplaySettings

ENVS = 4
LAYOUT = timestep_streams.layout(ENVS)
LIMITS = ReplaySettings(size=1000, min_size=8, samples_per_insert=4.0, demonstration_share=0.25, demonstration_items=16)
ACTOR, FEEDER = 0, LAYOUT.actors


def replay_of(layout=LAYOUT, limits=LIMITS, batch_size=8, kind=TransitionReplay, **settings):
    return kind(layout, limits, batch_size, **settings)


def write(replay, handle, index, reward, steps=5):
    writer = replay.writer(handle, index)
    for record in timestep_streams.stream(ENVS, steps):
        record.first[:] = record.last[:] = False
        record.discount[:] = 1.0
        record.reward[:] = reward
        writer.append(record)
    assert writer.ready(10.0, max_pending=0)
    return writer


@pytest.mark.slow("daily")
@pytest.mark.parametrize("kind", [TransitionReplay, SequenceReplay])
@pytest.mark.parametrize(("updates", "exponent"), [(1, 0.0), (3, 0.6)])
def test_a_share_of_each_batch_is_of_what_feeders_wrote(serve, updates, exponent, kind):
    replay = replay_of(updates_per_call=updates, priority_exponent=exponent, kind=kind)
    handle = serve(replay.tables())
    writers = [write(replay, handle, ACTOR, 1.0), write(replay, handle, FEEDER, 2.0)]
    found = replay.dataset(handle, tf.distribute.InputContext())
    assert (found.table, found.further, found.items_per_batch) == ("replay", ("demonstrations",), updates * 6)
    (sample,) = read_batches(found.dataset, 1)
    leading = () if updates == 1 else (updates,)
    assert sample.record.reward.shape == (*leading, 1, 8) and sample.info.key.shape == (*leading, 8)
    rewards = np.reshape(sample.record.reward, (updates, 8))
    assert rewards.tolist() == [[1.0] * 6 + [2.0] * 2] * updates
    for writer in writers:
        writer.close()


def test_learner_steps_per_played_item_stay_as_without_demonstrations():
    played, recorded = replay_of().tables()
    (alone,) = replay_of(limits=ReplaySettings(size=1000, min_size=8, samples_per_insert=4.0)).tables()
    # Six samples of an item in place of eight.
    assert played.info.rate_limiter_info.samples_per_insert == alone.info.rate_limiter_info.samples_per_insert * 6 / 8
    limiter = recorded.info.rate_limiter_info
    assert (recorded.info.max_size, limiter.min_size_to_sample, limiter.samples_per_insert) == (16, 16, 1.0)
    assert limiter.min_diff < -1e300


@pytest.mark.slow("daily")
def test_priorities_reach_both_tables(serve):
    # So many samples per item that the dataset's own do not use them up.
    replay = replay_of(priority_exponent=1.0, limits=dataclasses.replace(LIMITS, samples_per_insert=400.0))
    handle = serve(replay.tables())
    writers = [write(replay, handle, ACTOR, 1.0), write(replay, handle, FEEDER, 2.0)]
    found = replay.dataset(handle, tf.distribute.InputContext())
    (sample,) = read_batches(found.dataset, 1)
    updater = PriorityUpdater(handle, found.table, *found.further)
    updater.submit(Priorities(sample.info.key, sample.info.shard, np.full(8, 7.0, np.float32)))
    assert updater.wait(10.0) and updater.counts() == (1, 0)
    changed = set(np.asarray(sample.info.key).tolist())
    for table, number in (("replay", 6), ("demonstrations", 2)):
        seen = {one.info.key: one.info.priority for one in handle.client(0).sample(table, 12, emit_timesteps=False)}
        assert {priority for key, priority in seen.items() if key in changed} == {7.0}
        assert 0 < len(changed & set(seen)) <= number
    updater.close()
    for writer in writers:
        writer.close()


def test_feeders_fill_their_table_once_and_then_wait_for_samples(serve):
    replay = replay_of()
    handle = serve(replay.tables())
    writer = replay.writer(handle, FEEDER)
    accepted = 0
    for record in timestep_streams.stream(ENVS, 40):
        record.first[:] = record.last[:] = False
        record.discount[:] = 1.0
        writer.append(record)
        if not writer.ready(1.0, max_pending=0):
            break
        accepted += 1
    assert 16 / ENVS <= accepted < 16 / ENVS + 4
    writer.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(batch_size=8, share=0.01), "demonstration_share 0.01 leaves all of the 8 samples .* to what is played"),
        (dict(batch_size=8, share=0.99), "demonstration_share 0.99 leaves none of the 8 samples"),
        (dict(batch_size=8, share=0.5, together=2), "a replay with a demonstration_share takes samples one by one"),
    ],
)
def test_what_cannot_work_is_refused(settings, message):
    limits = ReplaySettings(
        size=1000,
        min_size=8,
        samples_per_insert=4.0,
        demonstration_share=settings["share"],
        sampled_together=settings.get("together"),
    )
    with pytest.raises(CallboardError, match=message):
        replay_of(limits=limits, batch_size=settings["batch_size"]).check()
