"""Gymnasium's vector environments: ends of episodes in both modes of resetting, seeds, pictures, mistakes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from odd_environments import error_of
from scripted_environments import fresh_same_step, vector_disabled, vector_next_step
from scripted_timesteps import ACTIONS, FINAL_LOST, FINAL_SHOWN, TRUNCATED_SHOWN, TRUNCATED_SKIPS, make, rows

from callboard import environments
from callboard.environments.adapters.gymnasium_checks import autoreset_mode
from callboard.errors import CallboardError

SEEDS = [11, 5, 70]
MISTAKES = {
    "OldVector": "'step' of OldVector returns 4 values, as in the old interface of Gym: let it return (observation, "
    "reward, terminated, truncated, info)",
    "SaysNoVector": "'step' of SaysNoVector gives terminations of shape (2,) and type <U2: let it return an array of 2 "
    "booleans",
    "ColumnVector": "'step' of ColumnVector gives rewards of shape (2, 1) and type float64: let it return an array of "
    "2 numbers",
    "VectorWithoutSingleSpaces": "VectorWithoutSingleSpaces has no single_observation_space: an environment of "
    "Gymnasium 1 must have one",
}


def test_same_step_reset_gives_first_with_the_reward_and_discount_of_the_ended_episode():
    environment = make("own_same_step")
    timesteps = [environment.reset(), *(environment.step(actions) for actions in ACTIONS)]
    assert rows(timesteps) == FINAL_LOST


@pytest.mark.parametrize(
    "factory",
    [
        "fresh_same_step",
        "fresh_same_step_wrapped",
        pytest.param("fresh_same_step_processes", marks=pytest.mark.slow),
    ],
)
def test_same_step_reset_shows_the_final_observation_of_a_time_limit(factory):
    environment = make(factory)
    timesteps = [environment.reset(), *(environment.step(actions) for actions in ACTIONS)]
    # Processes cannot wait, so that an episode is left out after each time limit.
    assert rows(timesteps) == (TRUNCATED_SKIPS if factory == "fresh_same_step_processes" else TRUNCATED_SHOWN)
    environment.close()


@pytest.mark.parametrize("factory", ["own_same_step", "fresh_same_step"])
def test_no_environment_is_stepped_after_a_time_limit_of_all(factory):
    environment = make(factory)
    timesteps = [environment.reset(), *(environment.step(np.ones(2, np.int32)) for _ in range(9))]
    # Episodes follow each other as in an environment that resets on the next step.
    expected = [(*FINAL_SHOWN[1], ([2, 1], 2, 1, False, False))] * 2
    assert rows(timesteps) == tuple(map(list, expected))


def test_a_vector_environment_of_single_ones_seeds_each_of_them():
    single = environments.make("Pendulum-v1", 3, SEEDS)
    vector = environments.GymnasiumVectorBatch(gymnasium.make_vec("Pendulum-v1", 3, "sync"), SEEDS)
    np.testing.assert_array_equal(single.reset().observation, vector.reset().observation)


def test_render_shows_environment_0_and_does_not_change_later():
    environment = environments.make("scripted_environments:vector_own", 2, [0, 1])
    environment.reset()
    before = environment.render()
    environment.step(np.zeros(2, np.int32))
    after = environment.render()
    assert (before == 0).all() and (after == 1).all()


def test_the_way_of_resetting_is_in_the_metadata():
    assert autoreset_mode(vector_next_step(1)) is AutoresetMode.NEXT_STEP
    assert autoreset_mode(fresh_same_step(1)) is AutoresetMode.SAME_STEP
    with pytest.raises(CallboardError, match="SyncVectorEnv begins no episode by itself"):
        autoreset_mode(vector_disabled(1))


@pytest.mark.parametrize("odd", MISTAKES)
def test_mistakes_are_refused_in_one_line(odd):
    assert error_of(odd) == MISTAKES[odd]
