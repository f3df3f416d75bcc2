"""Masked environments show the chosen entries of their observation, and nothing else changes."""

import numpy as np
import pytest

from callboard import environments
from callboard.errors import CallboardError

MASKED = "callboard.environments.masked_observations:masked"
SEEDS = [11, 5, 70]


def test_masked_hides_the_velocities():
    shown = environments.make(MASKED, 3, SEEDS)
    whole = environments.make("CartPole-v1", 3, SEEDS, {"vectorized": False})
    np.testing.assert_array_equal(shown.reset().observation, whole.reset().observation[:, [0, 2]])
    for _ in range(30):
        actions = np.ones(3, np.int32)
        np.testing.assert_array_equal(shown.step(actions).observation, whole.step(actions).observation[:, [0, 2]])
    np.testing.assert_array_equal(shown.spec.observation.maximum, whole.spec.observation.maximum[[0, 2]])


def test_any_entries_of_any_vector_can_be_kept():
    options = {"id": "Pendulum-v1", "keep": [2], "max_episode_steps": 7}
    spec = environments.spec(MASKED, options)
    assert spec.observation.shape == (1,) and spec.observation.maximum.tolist() == [8]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"id": "CartPol-v1"}, "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (
            {"gravity": 3},
            "environment 'CartPole-v1' has no option 'gravity'; "
            "its options are max_episode_steps, render_mode, sutton_barto_reward, vectorized",
        ),
        ({"keep": [4]}, "keep=[4] does not fit 'CartPole-v1': choose from 0 to 3"),
        ({"keep": []}, "keep=[] does not fit 'CartPole-v1': choose from 0 to 3"),
        (
            {"id": "FrozenLake-v1"},
            "the observation of 'FrozenLake-v1' is not a vector: there is nothing to hide by index",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(options, message):
    with pytest.raises(CallboardError) as caught:
        environments.make(MASKED, 2, [0, 1], options)
    assert str(caught.value) == message


def test_an_observation_of_another_shape_is_refused():
    options = {"id": "registered_environments:CallboardTest/Shrinks-v0", "keep": [0]}
    environment = environments.make(MASKED, 1, [0], options)
    environment.reset()
    with pytest.raises(CallboardError, match="gives an observation of shape .1,. where its space says .2,.$"):
        environment.step(np.zeros(1, np.int32))
