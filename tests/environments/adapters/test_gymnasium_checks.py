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
