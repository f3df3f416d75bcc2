"""Names that messages about environments suggest: each is accepted itself."""

import re

import gymnasium
import pytest
import yaml

from callboard import environments
from callboard.environments.adapters.atari import atari_ids
from callboard.environments.gymnasium_registry import _newest_by_name
from callboard.errors import CallboardError

WRITTEN = [
    ("pong", "ALE/Pong-v5"),
    ("PongDeterministic", "ALE/Pong-v5"),
    ("space_invaders", "ALE/SpaceInvaders-v5"),
    ("Brekout", "ALE/Breakout-v5"),
    ("pong-v9", "ALE/Pong-v5"),
    ("cartpole", "CartPole-v1"),
    ("ant", "Ant-v5"),
    ("LunarLander-v2", "LunarLander-v3"),
]


def problem(name, options=()):
    """The message with which a name is refused; None if it is accepted, or needs what its message installs."""
    try:
        environments.check(name, dict(options))
    except CallboardError as error:
        text = str(error)
        needs = re.fullmatch(r".* needs the package '\w+': .*pip install 'callboard\[[\w-]+\]'", text)
        return None if needs or "No module named" in text else text
    return None


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_a_game_or_environment_is_found_by_its_plain_name(written, meant):
    with pytest.raises(CallboardError) as caught:
        environments.check(written)
    assert str(caught.value) == f"unknown environment {written!r}; did you mean {meant!r}?"


def test_every_id_that_may_be_suggested_is_accepted():
    atari_ids()
    names = sorted(_newest_by_name().values())
    assert len(names) > 100
    assert {name: text for name in names if (text := problem(name))} == {}


def test_every_listed_name_is_accepted():
    assert {name: text for name in environments.names() if (text := problem(name))} == {}


def test_what_is_proposed_for_an_old_id_is_accepted():
    atari_ids()
    tried = 0
    for name in list(gymnasium.registry):
        text = problem(name) or ""
        for proposed, settings in re.findall(r"take '([^']+)'(?: with env_options (\{.*?\}))?", text):
            tried += 1
            assert problem(proposed, yaml.safe_load(settings or "{}")) is None, text
        for proposed in re.findall(r"(?:did you mean|or) '([^']+)'", text):
            tried += 1
            assert problem(proposed) is None, text
    assert tried > 200
