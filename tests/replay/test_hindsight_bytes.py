"""What further goals cost in replay, by the size of a checkpoint of the same episodes."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import timestep_streams
from dm_env import specs as dm_specs

from callboard import specs
from callboard.data import Record
from callboard.replay import ReplayHandle, ShardSaver, TransitionReplay, start_server
from callboard.settings.replay_settings import HindsightSettings, ReplaySettings

ENVS, LENGTH = 8, 50
GOAL = dm_specs.Array((3,), np.float32)
OBSERVATIONS = {
    "reach": dm_specs.Array((10,), np.float32),
    "push": dm_specs.Array((25,), np.float32),
    "long": dm_specs.Array((63,), np.float32),
    "frame": dm_specs.BoundedArray((84, 84, 1), np.uint8, 0, 255),
}
"""Vectors of the sizes of Gymnasium-Robotics' FetchReach and FetchPush, a longer one, and a frame."""


class Rewards:
    """Sparse rewards, as of Fetch."""

    def infos(self):
        return [{}] * ENVS

    def rewards(self, env, achieved, desired, infos):
        return -(np.linalg.norm(achieved - desired, axis=-1) > 0.05).astype(np.float32)

    def terminated(self, env, achieved, desired, infos):
        return None


def checkpoint_bytes(directory, observation, goals, together, episodes):
    """The size of a checkpoint of all windows of some episodes, whose goals move as by a random walk."""
    names = {"observation": observation, "achieved_goal": GOAL, "desired_goal": GOAL}
    spec = specs.EnvironmentSpec(names, dm_specs.BoundedArray((4,), np.float32, -1, 1))
    layout = timestep_streams.layout(ENVS, spec=spec)
    record = layout.record._replace(action=specs.tensor_spec(spec.action), extras=())
    layout = layout._replace(record=record, goal_rewards=Rewards())
    settings = ReplaySettings(
        size=100_000,
        min_size=8,
        samples_per_insert=1,
        error_buffer=1e8,
        sampled_together=together,
        hindsight=HindsightSettings(goals=goals),
    )
    replay = TransitionReplay(layout, settings, 64)
    server = start_server(replay.tables(), None, directory)
    handle, rng = ReplayHandle(lambda: [f"localhost:{server.port}"]), np.random.default_rng(0)
    writer = replay.writer(handle, 0)
    for timestep in range(episodes * LENGTH):
        if timestep % LENGTH == 0:
            achieved, desired = rng.normal(size=(2, ENVS, 3)).astype(np.float32)
        achieved = achieved + 0.02 * rng.normal(size=(ENVS, 3)).astype(np.float32)
        frame = rng.integers(256, size=(ENVS, *observation.shape), dtype=np.uint8)
        seen = frame if observation.dtype == np.uint8 else rng.normal(size=frame.shape).astype(np.float32)
        writer.append(
            Record(
                observation={"observation": seen, "achieved_goal": achieved, "desired_goal": desired},
                first=np.full(ENVS, timestep % LENGTH == 0),
                last=np.full(ENVS, timestep % LENGTH == LENGTH - 1),
                action=rng.uniform(-1, 1, (ENVS, 4)).astype(np.float32),
                reward=np.full(ENVS, -1, np.float32),
                discount=np.ones(ENVS, np.float32),
                extras=(),
                version=np.full((ENVS, 2), timestep, np.int32),
            )
        )
        assert writer.ready(60)
    writer.close()
    path = ShardSaver(handle, directory).save()
    server.stop()
    # Uncompressed: the messages are those that the server keeps in memory.
    files = [str(file) for file in pathlib.Path(path).rglob("*.tfrecord")]
    return sum(len(message.numpy()) for message in tf.data.TFRecordDataset(files, "ZLIB"))


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "name, together, episodes, most",
    [("push", 8, 8, 1.3), ("long", 1, 4, 1.3), ("frame", 1, 1, 1.02), ("reach", 8, 8, 1.3)],
)
def test_four_goals_cost_little_more_than_the_frames(tmp_path, name, together, episodes, most):
    """Against five times as much, if each goal had frames of its own."""
    sizes = [checkpoint_bytes(tmp_path / str(goals), OBSERVATIONS[name], goals, together, episodes) for goals in (0, 4)]
    print(f"{name}: {sizes[1] / sizes[0]:.3f}")
    assert sizes[1] <= most * sizes[0]
