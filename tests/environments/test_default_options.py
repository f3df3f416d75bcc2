"""The options of environments with their defaults, and the page that lists them."""

import dataclasses
import pathlib
import re

import pytest

from callboard.environments.default_options import OPTIONS, default_options
from callboard.errors import CallboardError

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "environments.md").read_text()


@pytest.mark.parametrize(
    "beginning, shown", [("ale/", "## Atari"), ("procgen:",) * 2, ("minatar/",) * 2, ("dm_control:",) * 2]
)
def test_the_page_has_the_defaults_of_every_option(beginning, shown):
    if shown == "## Atari":
        rows = PAGE.partition("## Atari\n")[2].partition("\n## ")[0]
        found = dict(re.findall(r"^\| `(\w+)` \| (\w[^|]*?) \|", rows, re.MULTILINE))
    else:
        (row,) = re.findall(rf"(?mi)^\| `{beginning}` \| (.*) \|$", PAGE)
        found = dict(re.findall(r"`(\w+)` ([^,]+)", row))
    kind = OPTIONS[beginning]
    assert found == {field.name: str(field.default) for field in dataclasses.fields(kind)}


def test_options_of_gymnasium_of_a_factory_and_of_a_class():
    assert default_options("CartPole-v1")["max_episode_steps"] == 500
    assert default_options("CartPole-v1")["sutton_barto_reward"] is False
    assert default_options("own_callbacks:Walk") == {"length": 3}
    assert default_options("ALE/Pong-v5")["repeat_action_probability"] == 0.25


def test_options_of_bsuite_and_minigrid():
    pytest.importorskip("bsuite")
    pytest.importorskip("minigrid")
    assert default_options("bsuite:memory_len/3")["memory_length"] == 4
    assert default_options("MiniGrid-DoorKey-5x5-v0")["size"] == 5
    assert default_options("MiniGrid-DoorKey-5x5-v0")["fully_observed"] is False


@pytest.mark.parametrize(
    "env, option, hint",
    [
        ("ALE/Pong-v5", "frame_stack", "that is a setting of the agent: --agent.frame-stack"),
        ("ALE/Pong-v5", "sticky", "did you mean 'repeat_action_probability'?"),
        ("MinAtar/Breakout-v1", "sticky-actions", "did you mean 'sticky_action_prob'?"),
        ("ALE/Pong-v5", "terminal_on_life_loss", "did you mean 'life_loss'?"),
        ("procgen:coinrun", "framestack", "that is a setting of the agent: --agent.frame-stack"),
        ("CartPole-v1", "n_stack", "that is a setting of the agent: --agent.frame-stack"),
    ],
)
def test_names_of_other_libraries_are_understood(env, option, hint):
    from callboard.environments import check

    with pytest.raises(CallboardError) as refused:
        check(env, {option: 4})
    assert str(refused.value).endswith(hint)
