"""Errors for mistakes in names and options of environments, each in one line that says what to change."""

import sys

import gymnasium
import pytest

from callboard import environments
from callboard.environments.batches.user_errors import (
    creation_errors,
    keywords,
    unknown_environment,
    unknown_option,
    user_errors,
)
from callboard.errors import CallboardError


def creator(first, /, width, *rest, height=2):
    pass


def test_only_what_can_be_given_by_name_is_a_keyword():
    assert keywords(creator) == (["width", "height"], False)
    assert keywords(lambda width, **others: None) == (["width"], True)


def test_a_callable_without_a_signature_takes_anything():
    assert keywords(dict) == ([], True)


def test_the_closest_name_is_suggested_without_the_common_beginning():
    known = ["coinrun", "maze"]
    assert str(unknown_environment("procgen:maz", known, "see the list", "procgen:")) == (
        "unknown environment 'procgen:maz'; did you mean 'procgen:maze'?"
    )
    assert str(unknown_environment("PROCGEN:Coinrun", known, "see the list", "procgen:")).endswith("'procgen:coinrun'?")
    assert str(unknown_environment("procgen:zzzz", known, "see the list", "procgen:")) == (
        "unknown environment 'procgen:zzzz'; see the list"
    )


@pytest.mark.parametrize(
    "taken, hint",
    [
        (["width", "height"], "did you mean 'width'?"),
        (["size", "depth"], "its options are depth, size"),
        ([], "it has none"),
    ],
)
def test_an_unknown_option_comes_with_the_known_ones(taken, hint):
    assert str(unknown_option("Maze", "widht", taken)) == f"environment 'Maze' has no option 'widht'; {hint}"


def test_errors_of_a_users_mistake_become_one_line():
    with pytest.raises(CallboardError, match="^environment 'Maze' has no option 'widht'; did you mean 'width'"):
        with user_errors("Maze", {"widht": 3}, lambda: ["width", "height"]):
            creator(1, widht=3)
    with pytest.raises(CallboardError, match="^environment 'Maze' cannot be made: first line second line$"):
        with user_errors("Maze", {}, list):
            raise gymnasium.error.Error("first line\nsecond line")
    with pytest.raises(CallboardError, match="^environment 'Maze' cannot be made: too wide$"):
        with creation_errors("Maze", ValueError, AssertionError):
            raise AssertionError("too wide")


def test_errors_of_the_environment_itself_keep_their_traceback():
    for error in (TypeError("unexpected keyword argument 'color'"), TypeError("unsupported operand"), OSError("disk")):
        with pytest.raises(type(error)) as caught:
            with user_errors("Maze", {"width": 3}, list):
                raise error
        assert caught.value is error


@pytest.mark.parametrize(
    "name, module, package, install",
    [
        ("ALE/Pong-v5", "ale_py", "ale-py", "callboard[atari]"),
        ("MinAtar/Breakout-v1", "minatar", "minatar", "callboard[atari]"),
        ("procgen:coinrun", "procgen", "procgen", "procgen==0.10.7"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(monkeypatch, name, module, package, install):
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CallboardError) as caught:
        environments.make(name, 2, [0, 1])
    message = str(caught.value)
    assert message.startswith(f"environment {name!r} needs the package {package!r} (")
    assert message.endswith(f"pip install {install!r}") and "\n" not in message
