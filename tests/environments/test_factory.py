"""Environments by name: the environments made from names, their seeds and options, and mistakes in names."""

import subprocess
import sys

import numpy as np
import pytest
from dm_env import specs
from odd_environments import error_of

from callboard import environments
from callboard.errors import CallboardError

SEEDS = [11, 5, 70]


def trajectory(name, seeds, options=None, steps=30):
    """The observations `[steps + 1, B, ...]` for a fixed sequence of actions, the same in every environment."""
    environment = environments.make(name, len(seeds), seeds, options)
    rng = np.random.default_rng(0)
    action = environment.spec.action
    timesteps = [environment.reset()]
    for _ in range(steps):
        chosen = action.minimum + rng.random(action.shape) * (action.maximum - action.minimum)
        timesteps.append(
            environment.step(np.tile(np.round(chosen).astype(action.dtype), (len(seeds), *[1] * chosen.ndim)))
        )
    environment.close()
    return np.stack([timestep.observation for timestep in timesteps])


@pytest.mark.parametrize(
    "name, options",
    [
        ("CartPole-v1", {"vectorized": True}),
        ("CartPole-v1", {"vectorized": False}),
        ("Pendulum-v1", {}),
        ("callboard.environments.masked_observations:masked", {}),
        ("scripted_environments:Seeded", {}),
    ],
)
def test_seeds_make_trajectories(name, options):
    once = trajectory(name, SEEDS, options)
    np.testing.assert_array_equal(once, trajectory(name, SEEDS, options))
    other = trajectory(name, [21, 22, 23], options)
    for slot in range(3):
        assert (once[0, slot] != other[0, slot]).any()
        assert (once[0, slot] != once[0, slot - 1]).any()


@pytest.mark.parametrize(
    "name", ["Pendulum-v1", "callboard.environments.masked_observations:masked", "scripted_environments:Seeded"]
)
def test_what_an_environment_does_follows_its_own_seed_alone(name):
    np.testing.assert_array_equal(trajectory(name, SEEDS)[:, 1:2], trajectory(name, SEEDS[1:2]))


def test_spec_of_an_environment():
    observation, action = environments.spec("CartPole-v1")
    assert isinstance(observation, specs.BoundedArray)
    assert observation.shape == (4,) and observation.dtype == np.float32
    assert action == specs.DiscreteArray(2, dtype=np.int32)
    assert environments.spec("Pendulum-v1").action == specs.BoundedArray((1,), np.float32, -2.0, 2.0)
    assert environments.spec("gymnasium:Acrobot-v1").action.num_values == 3


def test_options_reach_the_environment():
    environment = environments.make("Pendulum-v1", 2, [0, 1], {"max_episode_steps": 2})
    environment.reset()
    environment.step(np.zeros((2, 1)))
    assert environment.step(np.zeros((2, 1))).last.all()
    assert trajectory("scripted_environments:Seeded", [0], {"scale": 100.0}).max() > 1


def test_importing_environments_does_not_import_tensorflow():
    code = "import sys, callboard.environments; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_environment_is_named_by_text():
    with pytest.raises(CallboardError, match="named by text, such as 'CartPole-v1', not by a function"):
        environments.make(lambda: None, 1, [0])


SHOWS_NOTHING = {
    "Shapeless": "environment 'odd_environments:Shapeless' has an observation of shape (0,), with nothing in it: "
    "give it at least one element",
    "PartShapeless": "environment 'odd_environments:PartShapeless' has an observation of shape (0,) at 'hand', with "
    "nothing in it: leave that part out",
    "EmptyDict": "environment 'odd_environments:EmptyDict' shows nothing: its observation space is empty, give it a "
    "part",
}


@pytest.mark.parametrize("odd", SHOWS_NOTHING)
def test_an_environment_that_shows_nothing_is_refused(odd):
    assert error_of(odd) == SHOWS_NOTHING[odd]
