"""One-line errors about Gymnasium environments that lack something."""

import gymnasium
import pytest
from informed_environments import error_of

from callboard.environments.gymnasium_checks import check_has, checked_reset, environment_name, reset_errors


class Odd:
    def reset(self):
        return "observation"


def test_an_environment_is_named_by_its_id_or_class():
    assert environment_name(gymnasium.make("CartPole-v1")) == "CartPole-v1"
    assert environment_name(Odd()) == "Odd"


def test_what_is_missing_is_named():
    assert "Odd has no observation_space" in error_of(lambda: check_has(Odd(), ["observation_space"]))
    assert "'reset' of Odd gives no info" in error_of(lambda: checked_reset(Odd(), Odd().reset()))


@pytest.mark.parametrize(
    "argument, says", [("seed", "Odd cannot be seeded"), ("options", "Odd cannot be set to a task")]
)
def test_a_reset_without_arguments(argument, says):
    def reset():
        with reset_errors(Odd()):
            Odd().reset(**{argument: None})

    assert says in error_of(reset)
