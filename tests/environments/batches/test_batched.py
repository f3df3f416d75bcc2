"""The batched interface: what holds for every adapter, with scripted episodes, and the functions they share."""

import numpy as np
import pytest
import tree
from scripted_environments import DmScript, GymScript
from scripted_timesteps import ACTIONS, FINAL_SHOWN, make, rows

from callboard import environments
from callboard.environments.batches.batched import check_seeds, discrete_actions, first_timestep, picture
from callboard.errors import CallboardError

NEXT_STEP = ["DmScript", "GymScript", "vector_next_step", "vector_own", "batched_itself"]


@pytest.mark.parametrize("factory", NEXT_STEP)
def test_final_observation_is_shown_and_the_next_timestep_is_first(factory):
    environment = make(factory)
    # Timesteps are compared at the end: one that shares memory with a later one would have changed by then.
    timesteps = [environment.reset(), *(environment.step(actions) for actions in ACTIONS)]
    assert rows(timesteps) == FINAL_SHOWN


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


@pytest.mark.parametrize("script", [DmScript, GymScript])
def test_close_reaches_every_environment_once(script):
    single = [script() for _ in range(3)]
    batch = environments.DmEnvBatch(single) if script is DmScript else environments.GymnasiumBatch(single, [0, 1, 2])
    batch.close()
    batch.close()
    assert [environment.closed for environment in single] == [1, 1, 1]


def test_one_seed_to_each_environment():
    with pytest.raises(ValueError, match="3 environments need as many seeds"):
        environments.make("CartPole-v1", 3, [0, 1])


def test_there_is_at_least_one_environment():
    with pytest.raises(ValueError, match="and at least one; got 0 seeds"):
        check_seeds(0, [])


def test_the_first_timestep_ends_and_pays_nothing():
    observation = np.zeros((3, 2), np.float32)
    timestep = first_timestep(observation, 3)
    assert timestep.observation is observation
    assert timestep.first.all() and not timestep.last.any()
    assert (timestep.reward == 0).all() and (timestep.discount == 1).all()


def test_discrete_actions_are_copied():
    actions = np.array([0, 4], np.int64)
    copied = discrete_actions(actions, 2, 5)
    assert copied.dtype == np.int32
    actions[:] = 1
    assert copied.tolist() == [0, 4]


@pytest.mark.parametrize(
    "actions, message",
    [
        ([0, 5], "actions from 0 to 5, expected 0 to 4"),
        ([-1, 0], "actions from -1 to 0, expected 0 to 4"),
        ([[0, 1]], r"actions of shape \(1, 2\), expected \(2,\)"),
    ],
)
def test_discrete_actions_that_a_library_might_not_check_are_refused(actions, message):
    with pytest.raises(ValueError, match=message):
        discrete_actions(actions, 2, 5)


def test_a_picture_is_a_copy():
    frame = np.zeros((4, 6, 3), np.uint8)
    copied = picture(frame, "Maze")
    frame[:] = 9
    assert (copied == 0).all()


@pytest.mark.parametrize("frame", [None, np.zeros((4, 6), np.uint8), np.zeros((4, 6, 3), np.float32)])
def test_anything_but_a_picture_is_refused(frame):
    with pytest.raises(CallboardError, match="Maze renders .*, not a picture of uint8") as caught:
        picture(frame, "Maze")
    assert "\n" not in str(caught.value)
