"""One-line errors about Gymnasium environments that lack something."""

import gymnasium
import numpy as np
import odd_environments
import pytest
from informed_environments import error_of

from callboard.environments.adapters.gymnasium_checks import (
    CheckedSteps,
    check_flags,
    check_has,
    check_reset_error,
    checked_reset,
    environment_name,
)


class Odd:
    def reset(self):
        return "observation"


def test_an_environment_is_named_by_its_id_or_class():
    assert environment_name(gymnasium.make("CartPole-v1")) == "CartPole-v1"
    assert environment_name(Odd()) == "Odd"


def test_what_is_missing_is_named():
    assert "Odd has no observation_space" in error_of(lambda: check_has(Odd(), ["observation_space"]))
    assert "'reset' of Odd gives no info" in error_of(lambda: checked_reset(Odd(), Odd().reset()))


@pytest.mark.parametrize("value", [False, True, np.True_, 0, 1.0, np.array([True])])
def test_what_is_true_or_false(value):
    check_flags("gives", value, value)


@pytest.mark.parametrize("value", ["no", None, 2, float("nan"), [], [True, False]])
def test_what_is_neither_true_nor_false(value):
    assert (
        error_of(lambda: check_flags("gives", False, value)) == f"gives truncated {value!r}: it must be True or False"
    )


@pytest.mark.parametrize(
    "odd, says",
    [
        (odd_environments.SaysNo, "'step' of SaysNo gives truncated 'no': it must be True or False"),
        (odd_environments.SaysNoLater, "'step' of SaysNoLater gives terminated 'no': it must be True or False"),
        (odd_environments.OldStep, "'step' of OldStep returns 4 values, as in the old interface of Gym"),
        (odd_environments.TextAsReward, "'step' of TextAsReward gives the reward '1.5': it must be a number"),
    ],
)
def test_steps_are_checked_where_they_are_made(odd, says):
    environment = CheckedSteps(odd())
    environment.reset()
    assert error_of(lambda: [environment.step(0) for _ in range(2)]).startswith(says)


@pytest.mark.parametrize(
    "argument, says", [("seed", "Odd cannot be seeded"), ("options", "Odd cannot be set to a task")]
)
def test_a_reset_without_arguments(argument, says):
    def reset():
        try:
            Odd().reset(**{argument: None})
        except TypeError as error:
            check_reset_error(Odd(), error)

    assert says in error_of(reset)


class Asked(gymnasium.Env):
    """Keeps its newest action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, action_space):
        self.action_space, self.action = action_space, None

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.action = action
        return np.zeros(1, np.float32), 0.0, False, False, {}


SPEED, GEAR = gymnasium.spaces.Box(-1, 1, (), np.float32), gymnasium.spaces.Discrete(3)


@pytest.mark.parametrize("nested", [lambda part: part, lambda part: {"a": part, "b": (2, part)}])
def test_numbers_of_vector_environments_are_arrays_without_axes(nested):
    space = nested(SPEED)
    if isinstance(space, dict):
        space = gymnasium.spaces.Dict({"a": SPEED, "b": gymnasium.spaces.Tuple((GEAR, SPEED))})
    environment = Asked(space)
    checked = CheckedSteps(environment)
    checked.reset()
    checked.step(nested(np.float32(0.5)))
    number = environment.action["b"][1] if isinstance(environment.action, dict) else environment.action
    assert type(number) is np.ndarray and number.shape == () and number == 0.5
    assert space.contains(environment.action)
