"""Environments with the `dm_env` interface: their specs, the values that they get and return, and mistakes."""

import dm_env
import numpy as np
import pytest
import tree
from dm_env import specs
from odd_environments import error_of
from scripted_environments import DmScript

from callboard.environments import DmEnvBatch
from callboard.environments.adapters.dm_env_adapter import spec_encoding
from callboard.errors import CallboardError


class DmMirror(dm_env.Environment):
    """A `dm_env` environment with the specs it is made with."""

    def __init__(self, observation_spec, action_spec):
        self._observation_spec = observation_spec
        self._action_spec = action_spec
        self.taken = []

    def observation_spec(self):
        return self._observation_spec

    def action_spec(self):
        return self._action_spec

    def _observation(self):
        return tree.map_structure(lambda leaf: leaf.generate_value(), self._observation_spec)

    def reset(self):
        return dm_env.restart(self._observation())

    def step(self, action):
        tree.map_structure(lambda leaf, value: leaf.validate(value), self._action_spec, action)
        self.taken.append(action)
        return dm_env.transition(0.5, self._observation(), discount=0.9)


def test_dm_env_specs():
    observation = {"joints": specs.BoundedArray((3,), np.float64, 0, 0.5), "goal": [specs.DiscreteArray(4)]}
    action = {"torque": specs.BoundedArray((2,), np.float64, -0.1, 0.1), "mode": specs.BoundedArray((), int, 1, 3)}
    singles = [DmMirror(observation, action) for _ in range(2)]
    batch = DmEnvBatch(singles)
    assert tree.map_structure(lambda leaf: (leaf.dtype.name, leaf.shape), batch.spec.observation) == {
        "joints": ("float32", (3,)),
        "goal": (("int32", ()),),
    }
    assert batch.spec.action["mode"] == specs.DiscreteArray(3, dtype=np.int32)
    batch.reset()
    high = batch.spec.action["torque"].maximum
    timestep = batch.step({"torque": np.broadcast_to(high, (2, 2)), "mode": np.array([0, 2], np.int32)})
    assert timestep.observation["joints"].shape == (2, 3) and timestep.observation["goal"][0].shape == (2,)
    assert timestep.reward.tolist() == [0.5, 0.5]
    np.testing.assert_array_equal(timestep.discount, np.array([0.9, 0.9], np.float32))
    assert [int(single.taken[-1]["mode"]) for single in singles] == [1, 3]


def test_dm_env_specs_that_are_not_supported():
    with pytest.raises(CallboardError, match="the observation spec StringArray is not supported"):
        DmEnvBatch([DmMirror({"name": specs.StringArray(())}, specs.DiscreteArray(2))])


def test_integers_with_bounds_are_choices():
    action = specs.BoundedArray((2,), np.int64, [0, 5], [3, 6])
    single = DmMirror(specs.Array((), np.float32), action)
    batch = DmEnvBatch([single])
    assert batch.spec.action.num_values.tolist() == [4, 2]
    batch.reset()
    batch.step(np.array([[3, 1]], np.int32))
    assert single.taken[-1].tolist() == [3, 6]


def test_integers_without_bounds_are_no_actions():
    with pytest.raises(CallboardError, match=r"the action spec int64\(2,\) has no bounds: give it as a BoundedArray"):
        DmEnvBatch([DmMirror(specs.Array((), np.float32), specs.Array((2,), np.int64))])


def test_images_with_their_channels_first_are_turned():
    batch = DmEnvBatch([DmMirror(specs.BoundedArray((3, 12, 16), np.uint8, 0, 255), specs.DiscreteArray(2))])
    assert batch.reset().observation.shape == (1, *batch.spec.observation.shape) == (1, 12, 16, 3)


def test_rewards_and_discounts_are_numbers():
    assert error_of("DmNoReward") == (
        "'step' of DmNoReward gives the reward None and the discount None: both must be numbers, and "
        "the discount one from 0 to 1"
    )


class Filmed(DmScript):
    """Has a picture and a duration of a timestep, as environments of dm_control have."""

    class physics:
        @staticmethod
        def render():
            return np.full((4, 6, 3), 7, np.uint8)

    def control_timestep(self):
        return 0.04


def test_pictures_and_their_rate_come_from_the_physics():
    batch = DmEnvBatch([Filmed()])
    assert (batch.render() == 7).all()
    assert batch.frames_per_second == 25


def test_an_environment_without_a_picture_says_so():
    batch = DmEnvBatch([DmScript()])
    assert batch.frames_per_second is None
    with pytest.raises(CallboardError, match="^DmScript has no picture to show: it has no method 'render'$"):
        batch.render()


def test_keys_that_have_no_order_are_refused_in_one_line():
    part = specs.Array((2,), np.float32)
    with pytest.raises(
        CallboardError, match="a dictionary of the observation spec has keys of different types, 1, 'a'"
    ):
        spec_encoding({1: part, "a": part}, "observation")
