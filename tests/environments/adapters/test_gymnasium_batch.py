"""Single Gymnasium environments, and what vector environments do alike: ends of episodes, seeds, pictures, mistakes."""

import numpy as np
import pytest
from odd_environments import error_of
from scripted_timesteps import make

from callboard import environments
from callboard.errors import CallboardError

MISTAKES = {
    "OldStep": "'step' of OldStep returns 4 values, as in the old interface of Gym: let it return (observation, "
    'reward, terminated, truncated, info), or add env_wrappers="OldGym"',
    "NoReward": "'step' of NoReward gives the reward None: it must be a number",
    "TextAsReward": "'step' of TextAsReward gives the reward '1.5': it must be a number",
    "SaysNo": "'step' of SaysNo gives truncated 'no': it must be True or False",
    "SaysNoLater": "'step' of SaysNoLater gives terminated 'no': it must be True or False",
    "NoSeed": "NoSeed cannot be seeded (NoSeed.reset() got an unexpected keyword argument 'seed'): let 'reset' take "
    'seed=None and options=None, or, for the old interface of Gym, add env_wrappers="OldGym"',
    "NoInfo": "'reset' of NoInfo gives no info: let it return (observation, info)",
    "NoInfoOfTwo": "'reset' of NoInfoOfTwo gives no info: let it return (observation, info)",
    "NoSpace": "NoSpace has no observation_space: an environment of Gymnasium 1 must have one",
}


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


@pytest.mark.parametrize("odd", MISTAKES)
def test_mistakes_are_refused_in_one_line(odd):
    assert error_of(odd) == MISTAKES[odd]
