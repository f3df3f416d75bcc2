"""Gymnasium environments, single ones and vector environments: ends of episodes, seeds, pictures, and mistakes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from odd_environments import error_of
from scripted_environments import fresh_same_step, vector_disabled, vector_next_step
from scripted_timesteps import ACTIONS, FINAL_LOST, FINAL_SHOWN, TRUNCATED_SHOWN, make, rows

from callboard import environments
from callboard.environments.gymnasium_adapter import autoreset_mode
from callboard.errors import CallboardError

SEEDS = [11, 5, 70]
MISTAKES = {
    "OldStep": "'step' of OldStep returns 4 values, as in the old interface of Gym: let it return (observation, "
    "reward, terminated, truncated, info)",
    "OldVector": "'step' of OldVector returns 4 values, as in the old interface of Gym: let it return (observation, "
    "reward, terminated, truncated, info)",
    "NoReward": "'step' of NoReward gives the reward None: it must be a number",
    "NoSeed": "NoSeed cannot be seeded (NoSeed.reset() got an unexpected keyword argument 'seed'): let 'reset' take "
    "seed=None and options=None",
    "NoInfo": "'reset' of NoInfo gives no info: let it return (observation, info)",
    "NoInfoOfTwo": "'reset' of NoInfoOfTwo gives no info: let it return (observation, info)",
    "NoSpace": "NoSpace has no observation_space: an environment of Gymnasium 1 must have one",
    "VectorWithoutSingleSpaces": "VectorWithoutSingleSpaces has no single_observation_space: an environment of "
    "Gymnasium 1 must have one",
}


# The first one's environments write the reset's observation into the array of the final one.
@pytest.mark.parametrize("factory", ["vector_same_step", "own_same_step"])
def test_same_step_reset_gives_first_with_the_reward_and_discount_of_the_ended_episode(factory):
    environment = make(factory)
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
    assert rows(timesteps) == TRUNCATED_SHOWN
    environment.close()


@pytest.mark.parametrize("factory", ["own_same_step", "fresh_same_step"])
def test_no_environment_is_stepped_after_a_time_limit_of_all(factory):
    environment = make(factory)
    timesteps = [environment.reset(), *(environment.step(np.ones(2, np.int32)) for _ in range(9))]
    # Episodes follow each other as in an environment that resets on the next step.
    expected = [(*FINAL_SHOWN[1], ([2, 1], 2, 1, False, False))] * 2
    assert rows(timesteps) == tuple(map(list, expected))


def test_cartpole_ends_by_termination_or_time_limit_in_both_forms():
    for vectorized in (True, False):
        options = {"max_episode_steps": 15, "vectorized": vectorized}
        environment = environments.make("CartPole-v1", 8, range(8), options)
        environment.reset()
        # A pole that is pushed to one side falls within 11 steps; one that is pushed in turn stands for 15.
        for swing in (False, True):
            length = np.zeros(8, int)
            discount = np.full(8, np.nan)
            over = np.zeros(8, bool)
            timesteps = [environment.reset()]
            for time in range(16):
                timestep = environment.step(np.full(8, time % 2 if swing else 1, np.int32))
                assert (timestep.first == timesteps[-1].last).all()
                assert (timestep.reward == ~timestep.first).all() and (timestep.discount[timestep.first] == 1).all()
                ended = timestep.last & ~over
                length[ended], discount[ended] = time + 1, timestep.discount[ended]
                over |= timestep.last
                timesteps.append(timestep)
            assert over.all()
            if swing:
                assert (length == 15).all() and (discount == 1).all()
            else:
                assert (length < 15).all() and (discount == 0).all()
        environment.close()


def test_a_vector_environment_of_single_ones_seeds_each_of_them():
    single = environments.make("Pendulum-v1", 3, SEEDS)
    vector = environments.GymnasiumVectorBatch(gymnasium.make_vec("Pendulum-v1", 3, "sync"), SEEDS)
    np.testing.assert_array_equal(single.reset().observation, vector.reset().observation)


def test_only_the_first_reset_is_seeded():
    environment = environments.make("Pendulum-v1", 1, [3])
    assert (environment.reset().observation != environment.reset().observation).any()


@pytest.mark.parametrize("vectorized", [True, False])
def test_render_shows_a_picture(vectorized):
    environment = environments.make("CartPole-v1", 2, [0, 1], {"render_mode": "rgb_array", "vectorized": vectorized})
    environment.reset()
    before = environment.render()
    for _ in range(5):
        environment.step(np.ones(2, np.int32))
    after = environment.render()
    assert before.dtype == np.uint8 and before.shape == (400, 600, 3)
    assert (after != before).any()
    environment.close()


def test_render_shows_environment_0_and_does_not_change_later():
    environment = environments.make("scripted_environments:vector_own", 2, [0, 1])
    environment.reset()
    before = environment.render()
    environment.step(np.zeros(2, np.int32))
    after = environment.render()
    assert (before == 0).all() and (after == 1).all()


@pytest.mark.parametrize(
    "name, message",
    [
        ("CartPole-v1", "CartPole-v1 has no picture to show: make it with the option render_mode='rgb_array'"),
        ("scripted_environments:GymScript", "GymScript has no picture to show: it has no render mode 'rgb_array'"),
    ],
)
def test_an_environment_without_a_picture_says_so(name, message):
    environment = environments.make(name, 1, [0])
    environment.reset()
    with pytest.raises(CallboardError) as caught:
        environment.render()
    assert str(caught.value) == message


def test_the_frame_rate_is_that_of_the_metadata():
    single = environments.make("CartPole-v1", 1, [0], {"vectorized": False})
    vector = environments.make("CartPole-v1", 2, [0, 1], {"vectorized": True})
    assert single.frames_per_second == vector.frames_per_second == 50
    assert make("GymScript").frames_per_second is None


def test_the_way_of_resetting_is_in_the_metadata():
    assert autoreset_mode(vector_next_step(1)) is AutoresetMode.NEXT_STEP
    assert autoreset_mode(fresh_same_step(1)) is AutoresetMode.SAME_STEP
    with pytest.raises(CallboardError, match="SyncVectorEnv must declare how it resets by itself"):
        autoreset_mode(vector_disabled(1))


@pytest.mark.parametrize("odd", MISTAKES)
def test_mistakes_are_refused_in_one_line(odd):
    assert error_of(odd) == MISTAKES[odd]
