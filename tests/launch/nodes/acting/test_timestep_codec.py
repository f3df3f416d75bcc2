"""Timesteps are packed into bytes without loss."""

import numpy as np
import pytest
import tree
from dm_env import specs as dm_specs

from callboard.data import Layout, Timestep
from callboard.launch.nodes.acting.timestep_codec import TimestepCodec
from callboard.specs import EnvironmentSpec


def test_timesteps_are_unpacked_as_they_were_packed():
    spec = EnvironmentSpec(dm_specs.Array((4,), np.float32), dm_specs.DiscreteArray(2))
    codec = TimestepCodec(Layout(spec, envs_per_actor=3, actors=1, shards=1, replicas=1, seed=1, max_steps=100))
    timestep = Timestep(
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.array([1.5, -2, 0], np.float32),
        np.array([1, 0, 1], np.float32),
        np.array([True, False, False]),
        np.array([False, False, True]),
    )
    tree.map_structure(np.testing.assert_array_equal, codec.unpack(codec.pack(timestep)), timestep)
    with pytest.raises(ValueError, match="float64"):
        codec.pack(timestep._replace(reward=np.zeros(3)))
