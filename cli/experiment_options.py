"""The options that define an experiment: the agent, a recipe, and every setting of the agent and of the run."""

import argparse
import pathlib
from collections.abc import Collection, Sequence

from ..errors import CallboardError, nearest, unknown
from ..launch.experiments.experiment import Experiment
from ..launch.experiments.option_parsing import given_options, option_name, option_texts
from ..launch.experiments.settings import Settings, parse_settings, read_recipes, read_settings
from ..launch.experiments.settings_help import HELP_END, format_first_help, format_help
from ..launch.run_directory.remote_storage import is_url
from ..messages import foreign_names
from ..settings.nested_settings import declared_fields
from .command_parser import CommandParser

RECIPE_HELP = "name of a recipe, or path of a YAML file; of several, later ones override earlier ones"


def experiment_parser(command: str, description: str) -> CommandParser:
    """Returns a parser for a command that takes an agent or a recipe."""
    parser = CommandParser(
        f"callboard {command}",
        usage=f"callboard {command} [AGENT] [--recipe NAME] [options]",
        description=f"{description}  AGENT is an agent's name, or package.module:Class; a recipe may name it instead.",
        add_help=False,
    )
    parser.add_argument("--recipe", action="append", help=RECIPE_HELP)
    parser.add_argument("-h", "--help", action="store_true", help="show this help")
    return parser


def parse_arguments(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, str | None, list[str]]:
    """Returns the parser's own options, the agent's name, which must come first, and the other options."""
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    known, options = parser.parse_known_args(arguments[1:] if agent else arguments)
    return known, agent, options


def local_directory(of: str, text: str) -> pathlib.Path:
    """Reads the `--run-dir` of what has several runs, a study or a search."""
    if not text:
        raise CallboardError("--run-dir is empty: name a directory, or leave it out")
    if is_url(text):
        raise CallboardError(f"--run-dir of a {of} must be a path, not {text}; use storage that all machines share")
    return pathlib.Path(text)


def define_experiment(agent: str | None, recipes: Sequence[str] | None, options: Sequence[str]) -> Settings:
    """Returns the settings of a new run."""
    return parse_settings(agent, read_recipes(recipes or ()), options)


def redefine_experiment(
    agent: str | None, recipes: Sequence[str] | None, options: Sequence[str], trust: bool = False
) -> Settings:
    """Returns the settings of a run that is resumed: those in its directory, changed by options."""
    run_dir = option_texts(options).get("run_dir")
    if run_dir is None:
        stray = next((option.words[0] for option in given_options(options) if not option.name), "runs/...")
        raise CallboardError(f"--resume needs the run's directory: --run-dir {stray}")
    if recipes:
        raise CallboardError("a run is resumed with its own settings, which options may change; leave --recipe out")
    settings = read_settings(run_dir, options, trust)
    if agent not in (None, settings.agent):
        raise CallboardError(f"the run in {run_dir} trains {settings.agent}, not {agent}; leave the agent out")
    return settings


def experiment_help(parser: argparse.ArgumentParser, agent: str | None, more: str = "") -> str:
    """Returns the help of a command that takes an agent or a recipe, which begins with what most runs set.

    Args:
      parser: the parser of the command's own options.
      agent: name of the agent; None if none is given.
      more: help for further options.
    """
    usage, _, own = parser.format_help().partition("\noptions:\n")
    if agent is None:
        rest = f"All options of the run, and those of an agent: {parser.prog} ppo --help"
    else:
        rest = format_help(agent)
    parts = [usage, format_first_help(agent), f"options of the command:\n{own}", rest, more, HELP_END]
    return "\n\n".join(part.strip("\n") for part in parts if part)


def split_options(words: Sequence[str], settings: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns the options that set some settings or entries of them, and all other words, each with their values.

    Args:
      words: for example `["--ray-cpus.actor", "0.5", "--max-steps", "1000"]`.
      settings: names of the settings, such as `ray_cpus`.
    """
    own: list[str] = []
    others: list[str] = []
    for option in given_options(words):
        (own if option.setting in settings or option.key in settings else others).extend(option.words)
    return own, others


def check_option_names(options: Sequence[str], own: Collection[str]) -> None:
    """Rejects options that are no settings of a run and resemble a command's own options.

    Args:
      options: options that are meant to be settings.
      own: the command's own options, such as `--resume`.
    """
    settings = list(map(option_name, declared_fields(Experiment)))
    for option in given_options(options):
        name = f"--{option.name.partition('.')[0]}"
        foreign = foreign_names.hint("setting", name, list(own)) if option.name else None
        if foreign is not None and name not in settings:
            raise CallboardError(f"unknown option {name!r}; {foreign}")
        if option.name and nearest(name, [*own, *settings]) in own:
            raise unknown("option", name, own)
