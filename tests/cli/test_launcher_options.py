"""Options of launchers: taken from the fields of their classes, and refused where they belong to another."""

import dataclasses
import re

import pytest

from callboard.cli.experiment_options import experiment_parser
from callboard.cli.train import launcher_help, parse_launcher
from callboard.errors import CallboardError
from callboard.launch.launchers.local_launchers import InlineLauncher
from callboard.launch.launchers.ray.launcher import RayLauncher
from callboard.launch.launchers.registry import LAUNCHERS


@pytest.fixture
def parser():
    return experiment_parser("train", "Trains an agent.")


def test_a_launcher_takes_its_own_options_and_leaves_the_others(parser):
    options = ["--max-steps", "1000", "--ray-wait", "5", "--seed=2"]
    launcher, others = parse_launcher("ray", options, parser)
    assert isinstance(launcher, RayLauncher) and launcher.wait == 5
    assert others == ["--max-steps", "1000", "--seed=2"]
    assert parse_launcher("inline", others, parser) == (InlineLauncher(), others)


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("inline", ["--ray-wait=5"], "--ray-wait is an option of --launcher ray"),
        ("processes", ["--cluster", "x.yaml"], "--cluster is an option of --launcher hosts"),
        ("processes", ["--eager"], "--eager is an option of --launcher inline and threads"),
        ("inline", ["--eager=maybe"], "eager must be true or false, not 'maybe'"),
        ("ray", ["--ray-wiat", "5"], "unknown option '--ray-wiat'; did you mean '--ray-wait'?"),
        ("ray", ["--ray-wait", "-1"], "ray_wait must be a whole number of at least 0, not -1"),
        ("inline", ["--recip", "x"], "did you mean '--recipe'?"),
    ],
)
def test_an_option_of_another_launcher_or_of_none_is_refused(parser, name, options, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        parse_launcher(name, options, parser)


@dataclasses.dataclass(frozen=True)
class Recipes(InlineLauncher):
    """Runs recipes.

    Attributes:
      recipe: the recipe.
    """

    recipe: str = ""


def test_an_option_that_the_command_has_is_refused(parser):
    with pytest.raises(CallboardError, match="Recipes has the option --recipe, which the command has: rename"):
        parse_launcher(f"{__name__}:Recipes", [], parser)


def test_the_help_lists_the_launchers_that_have_options():
    text = launcher_help("processes")
    assert "options of --launcher ray:" in text and "options of --launcher hosts:" in text
    assert "options of --launcher inline:" in text and "options of --launcher processes:" not in text
    assert "processes" in LAUNCHERS
