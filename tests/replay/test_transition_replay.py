"""Replay of n-step transitions: windows of the agent's numbers, in the shard of their actor."""

import timestep_streams
from reading import read_all

from callboard.replay import TransitionReplay
from callboard.settings.replay_settings import ReplaySettings

ENVS = 2
LAYOUT = timestep_streams.layout(ENVS, actors=4, shards=2)
LIMITS = ReplaySettings(size=200, min_size=2, samples_per_insert=1.0)


def test_an_item_has_the_steps_and_the_stack_of_the_agent():
    item_format = TransitionReplay(LAYOUT, LIMITS, batch_size=2, n_step=3, stack=4).item_format
    assert (item_format.length, item_format.stack, item_format.keep_extras) == (3, 4, False)
    # Three transitions have four observations, and the first of them has three older frames.
    assert item_format.signature().rows.shape[0] == 7
    assert TransitionReplay(LAYOUT, LIMITS, batch_size=2).item_format.length == 1


def test_every_actor_writes_to_its_shard(serve):
    replay = TransitionReplay(LAYOUT, LIMITS, batch_size=2, n_step=2, first_priority=lambda record: [3.0, 5.0])
    handle = serve(replay.tables(), replay.tables())
    writer = replay.writer(handle, actor=3)
    # No episode ends: a window begins at every timestep.
    for record in timestep_streams.stream(ENVS, 3):
        record.first[:] = record.last[:] = False
        record.discount[:] = 1.0
        writer.append(record)
    assert writer.items_written == ENVS and writer.ready(10.0, max_pending=0)
    assert handle.client(0).server_info()["replay"].current_size == 0
    items, info = read_all(handle, "replay", replay.item_format.signature(), shard=1)
    assert set(info.priority.numpy().tolist()) <= {3.0, 5.0}
    assert replay.item_format.read(items).record.observation["body"][:, 0, 1].numpy().tolist() == [0, 1, 2]
    writer.close()
