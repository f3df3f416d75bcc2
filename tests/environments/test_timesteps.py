"""One scripted episode after another through every adapter: how an episode ends and the next begins."""

import numpy as np
import pytest
import tree
from scripted_environments import DmScript, GymScript

from callboard import environments

NEXT_STEP = ["DmScript", "GymScript", "vector_next_step", "vector_own", "batched_itself"]

# Two environments, side by side.  Environment 0 terminates in its 2nd step, is cut off after 3 steps, terminates again.
# Environment 1 is cut off after every 3 steps.
ACTIONS = np.array([[0, 2, 1, 0, 1, 0, 0, 2], [1, 1, 1, 1, 1, 1, 1, 1]], np.int32).T

# observation, reward, discount, first, last: worked out by hand.
FINAL_SHOWN = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([0, 2], 3, 0, False, True),
        ([1, 0], 0, 1, True, False),
        ([1, 1], 1, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([1, 3], 1, 1, False, True),
        ([2, 0], 0, 1, True, False),
        ([2, 1], 3, 0, False, True),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([0, 3], 2, 1, False, True),
        ([1, 0], 0, 1, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([1, 3], 2, 1, False, True),
        ([2, 0], 0, 1, True, False),
    ],
)
FINAL_LOST = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([1, 0], 3, 0, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 1, 1, False, False),
        ([2, 0], 2, 1, True, False),
        ([2, 1], 1, 1, False, False),
        ([2, 2], 1, 1, False, False),
        ([3, 0], 3, 0, True, False),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([1, 0], 2, 1, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([2, 0], 2, 1, True, False),
        ([2, 1], 2, 1, False, False),
        ([2, 2], 2, 1, False, False),
    ],
)
# Terminations lose the final observation, time limits do not; after those the environment is reset twice.
TRUNCATED_SHOWN = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([1, 0], 3, 0, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 1, 1, False, False),
        ([1, 3], 2, 1, False, True),
        ([3, 0], 0, 1, True, False),
        ([3, 1], 1, 1, False, False),
        ([4, 0], 3, 0, True, False),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([0, 3], 2, 1, False, True),
        ([2, 0], 0, 1, True, False),
        ([2, 1], 2, 1, False, False),
        ([2, 2], 2, 1, False, False),
        ([2, 3], 2, 1, False, True),
        ([4, 0], 0, 1, True, False),
    ],
)


def make(factory, batch_size=2):
    return environments.make(f"scripted_environments:{factory}", batch_size, range(batch_size))


def rows(timesteps):
    """Timesteps as in the tables above, one list to each environment."""
    return tuple(
        [
            (
                list(timestep.observation[slot]),
                timestep.reward[slot],
                timestep.discount[slot],
                timestep.first[slot],
                timestep.last[slot],
            )
            for timestep in timesteps
        ]
        for slot in range(len(timesteps[0].reward))
    )


@pytest.mark.parametrize("factory", NEXT_STEP)
def test_final_observation_is_shown_and_the_next_timestep_is_first(factory):
    environment = make(factory)
    # Timesteps are compared at the end: one that shares memory with a later one would have changed by then.
    timesteps = [environment.reset(), *(environment.step(actions) for actions in ACTIONS)]
    assert rows(timesteps) == FINAL_SHOWN


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


@pytest.mark.parametrize("factory", [*NEXT_STEP, "vector_same_step"])
def test_termination_at_the_time_limit_is_a_termination(factory):
    environment = make(factory, 1)
    environment.reset()
    for action in (0, 0):
        environment.step(np.array([action]))
    assert environment.step(np.array([2])).discount == 0


@pytest.mark.parametrize("factory", [*NEXT_STEP, "vector_same_step"])
def test_reset_in_the_middle_begins_episodes_everywhere(factory):
    environment = make(factory)
    environment.reset()
    environment.step(np.array([2, 0]))
    timestep = environment.reset()
    assert timestep.first.all() and not timestep.last.any()
    assert (timestep.reward == 0).all() and (timestep.discount == 1).all()
    # Episodes that had ended before the reset are not begun a second time.
    timestep = environment.step(np.array([0, 0]))
    assert not timestep.first.any() and (timestep.observation[:, 1] == 1).all() and (timestep.reward == 1).all()


@pytest.mark.parametrize("factory", [*NEXT_STEP, "vector_same_step"])
def test_timesteps_have_the_dtypes_and_shapes_of_the_interface(factory):
    environment = make(factory, 5)
    assert environment.batch_size == 5
    for timestep in (environment.reset(), environment.step(np.zeros(5, np.int32))):
        assert tree.map_structure(lambda array: (array.dtype.name, array.shape), timestep) == (
            ("float32", (5, 2)),
            ("float32", (5,)),
            ("float32", (5,)),
            ("bool", (5,)),
            ("bool", (5,)),
        )


@pytest.mark.parametrize("factory", [*NEXT_STEP, "vector_same_step"])
def test_actions_that_do_not_fit_the_batch_are_refused(factory):
    environment = make(factory)
    environment.reset()
    with pytest.raises(ValueError, match=r"actions of shape \(3,\), expected \(2,\)"):
        environment.step(np.zeros(3, np.int32))


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


@pytest.mark.parametrize("script", [DmScript, GymScript])
def test_close_reaches_every_environment_once(script):
    single = [script() for _ in range(3)]
    batch = environments.DmEnvBatch(single) if script is DmScript else environments.GymnasiumBatch(single, [0, 1, 2])
    batch.close()
    batch.close()
    assert [environment.closed for environment in single] == [1, 1, 1]
