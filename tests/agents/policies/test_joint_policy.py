"""Policies of all agents as one, and the random policy."""

import numpy as np
import pytest
from dm_env import specs

from callboard.agents.policies.joint_policy import JointPolicy, UniformPolicy
from callboard.data import Timestep
from callboard.specs import EnvironmentSpec, MultiDiscreteArray

COUNT = 400


def actions_of(action, observation=None, seed=0, count=COUNT):
    policy = UniformPolicy(EnvironmentSpec(specs.Array((1,), np.float32), action), count, seed)
    return policy(Timestep(observation, None, None, None, None))[0]


def test_every_policy_acts_on_its_own_timestep():
    class View:
        def split(self, timestep):
            return {"red": timestep + 3, "blue": timestep + 4}

        def join(self, actions):
            return tuple(actions.items())

    policies = {"red": lambda timestep: (timestep * 10, ()), "blue": lambda timestep: (timestep * 100, ())}
    assert JointPolicy(View(), policies)(0) == ((("red", 30), ("blue", 400)), ())


def test_all_discrete_values_are_about_equally_frequent():
    actions = actions_of(specs.DiscreteArray(4, dtype=np.int64))
    assert actions.shape == (COUNT,) and actions.dtype == np.int64
    assert (np.bincount(actions, minlength=4) > COUNT / 4 * 0.6).all()


def test_the_seed_decides():
    action = specs.DiscreteArray(100)
    np.testing.assert_array_equal(actions_of(action, seed=3), actions_of(action, seed=3))
    assert (actions_of(action, seed=3) != actions_of(action, seed=4)).any()


def test_what_a_mask_forbids_is_not_taken():
    mask = np.tile(np.array([[1, 0, 0, 1], [0, 0, 1, 0]], np.int8), (COUNT // 2, 1))
    actions = actions_of(specs.DiscreteArray(4), {"observation": 0, "action_mask": mask})
    assert set(actions[::2]) == {0, 3} and set(actions[1::2]) == {2}


@pytest.mark.parametrize("nested", [False, True])
def test_masks_of_several_choices(nested):
    first, second = np.array([1, 0, 1]), np.array([0, 1])
    parts = [np.tile(part, (COUNT, 1)) for part in (first, second)]
    mask = tuple(parts) if nested else np.concatenate(parts, axis=1)
    actions = actions_of(MultiDiscreteArray([3, 2]), {"observation": 0, "action_mask": mask})
    assert actions.shape == (COUNT, 2) and set(actions[:, 0]) == {0, 2} and set(actions[:, 1]) == {1}


def test_several_choices_without_a_mask():
    actions = actions_of(MultiDiscreteArray([[2, 3], [1, 2]]))
    assert actions.shape == (COUNT, 2, 2) and actions.dtype == np.int32
    assert [set(column) for column in actions.reshape(COUNT, 4).T] == [{0, 1}, {0, 1, 2}, {0}, {0, 1}]


def test_numbers_are_within_their_bounds():
    bounded = specs.BoundedArray((2,), np.float32, [-1, 0], [1, 10])
    actions = actions_of(bounded)
    assert actions.shape == (COUNT, 2) and actions.dtype == np.float32
    assert (actions >= bounded.minimum).all() and (actions <= bounded.maximum).all()
    assert actions[:, 1].max() > 9 and actions[:, 0].min() < -0.9
    half = actions_of(specs.BoundedArray((1,), np.float32, 0, np.inf))
    assert (half >= 0).all() and np.isfinite(half).all()
    free = actions_of(specs.Array((1,), np.float32))
    assert abs(free.mean()) < 0.3 and 0.7 < free.std() < 1.3


def test_whole_numbers_reach_both_bounds():
    actions = actions_of(specs.BoundedArray((), np.uint8, 0, 255), count=20_000)
    assert actions.dtype == np.uint8 and (actions.min(), actions.max()) == (0, 255)
    assert set(actions_of(specs.BoundedArray((), np.bool_, False, True))) == {False, True}


def test_actions_with_several_parts():
    action = {"move": specs.DiscreteArray(3), "speed": specs.BoundedArray((2,), np.float32, 0, 1)}
    mask = np.tile([0, 0, 1], (COUNT, 1))
    actions = actions_of(action, {"observation": 0, "action_mask": mask})
    assert set(actions["move"]) == {2} and actions["speed"].shape == (COUNT, 2)
