"""Settings as a user writes them, in options and in YAML, and the experiment that they make.

Every field of the agent and of the experiment is an option (`--agent.learning-rate 3e-4`, `--max-steps 1000`) and a
YAML key (`agent: {learning_rate: 3e-4}`, `max_steps: 1000`), from the dataclasses themselves.
"""

import argparse
import dataclasses
import difflib
import itertools
import json
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonargparse
import yaml

from ..agents.agent import Agent
from ..agents.registry import agent_class, agent_name
from ..atomic_files import write_file
from ..data import CallboardError
from .experiment import Experiment
from .run_directory import RunDirectory
from .storage import Storage, is_url

RECIPES = pathlib.Path(__file__).parent / "recipes"
_AGENT = "agent"
_NAME = "name"


def parse_experiment(agent: str | None, recipe: Mapping[str, Any], options: Sequence[str]) -> Experiment:
    """The experiment that a recipe and command-line options make together; options come before the recipe.

    Options are merged into nested settings: `--env-options.size 5` sets that one environment option and leaves the
    others of the recipe as they are.

    Args:
      agent: name of the agent; None takes the recipe's.
      recipe: what the YAML holds, see `read_recipe`.
      options: for example `["--agent.learning-rate", "3e-4"]`.

    Raises:
      CallboardError: an unknown option or key, with the nearest right one, or a value of the wrong type.
    """
    settings = {key: value for key, value in recipe.items() if key != _AGENT}
    agent_settings = dict(recipe.get(_AGENT) or {})
    recipe_agent = agent_settings.pop(_NAME, None)
    name = agent or recipe_agent
    if name is None:
        raise CallboardError("name an agent (callboard train impala ...) or a recipe (--recipe impala-cartpole)")
    if recipe_agent not in (None, name):
        agent_settings = {}
    recipe_class = agent_class(name)
    if not dataclasses.is_dataclass(recipe_class):
        raise CallboardError(f"the agent {name!r} must be a frozen dataclass")
    parser = make_parser(recipe_class)
    known = [action.dest for action in parser._actions if action.dest != "help"]
    _check_keys([*settings, *(f"{_AGENT}.{key}" for key in agent_settings)], known)
    try:
        config = parser.parse_object({**settings, _AGENT: agent_settings})
        given = parser.parse_args(_normalised(options, parser), defaults=False)
    except (argparse.ArgumentError, jsonargparse.ArgumentError) as error:
        raise CallboardError(_one_line(str(error))) from error
    values = _merged(config.as_dict(), given.as_dict())
    agent_values = values.pop(_AGENT)
    if not values.get("env"):
        raise CallboardError("name an environment: --env CartPole-v1")
    if isinstance(values["run_dir"], str) and not is_url(values["run_dir"]):
        values["run_dir"] = pathlib.Path(values["run_dir"])
    return Experiment(agent=recipe_class(**agent_values), **values)


def make_parser(agent: type[Agent]) -> jsonargparse.ArgumentParser:
    """The options of an agent and an experiment."""
    parser = jsonargparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    # A recipe may name the environment; `parse_experiment` asks for it when neither does.
    parser.add_argument("--env", type=str, default="", help="name of the environment")
    parser.add_class_arguments(Experiment, skip={_AGENT, "env"})
    parser.add_class_arguments(agent, _AGENT)
    return parser


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe that ships, by name, or a YAML file of the user's, by path.

    Raises:
      CallboardError: there is none, or it is not a YAML mapping.
    """
    path = pathlib.Path(name)
    if not path.suffix:
        path = RECIPES / f"{name}.yaml"
    if not path.exists():
        near = difflib.get_close_matches(name, recipe_names(), n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"there are {', '.join(recipe_names())}, or a path to a YAML file"
        )
        raise CallboardError(f"unknown recipe {name!r}: {hint}")
    try:
        recipe = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise CallboardError(f"{path} is not valid YAML: {_one_line(str(error))}") from error
    if not isinstance(recipe, dict):
        raise CallboardError(f"{path} must hold settings, such as `env: CartPole-v1`")
    agent = recipe.get(_AGENT)
    if agent is not None and not isinstance(agent, dict):
        raise CallboardError(f"{path}: agent must hold settings, such as `agent: {{name: {agent}}}`")
    return recipe


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def write_experiment(experiment: Experiment, path: pathlib.Path) -> None:
    """Writes a YAML that `read_recipe` and `parse_experiment` turn into the same experiment, in one atomic step."""
    run_dir = experiment.run_dir if is_url(experiment.run_dir) else str(path.parent)
    # Start and end are marked, so that a file that was cut is not taken for one with fewer settings.
    settings = {**experiment_settings(experiment), "run_dir": run_dir}
    write_file(path, yaml.safe_dump(settings, sort_keys=False, explicit_start=True, explicit_end=True))


def settings_by_name(experiment: Experiment) -> dict[str, str]:
    """All settings but the run's directory as text, by the names of their options (`agent.learning_rate`)."""
    settings = experiment_settings(experiment)
    agent = {f"{_AGENT}.{name}" if name != _NAME else _AGENT: value for name, value in settings.pop(_AGENT).items()}
    del settings["run_dir"]
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in {**agent, **settings}.items()
    }


def read_experiment(run: str | pathlib.Path, options: Sequence[str] = ()) -> Experiment:
    """The experiment of a run directory, which may be a URL.

    Raises:
      CallboardError: there is no run in it.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-") as local:
        directory = RunDirectory(pathlib.Path(local if is_url(run) else run))
        if is_url(run):
            Storage(str(run)).fetch(directory.experiment.name, directory.path)
        if not directory.experiment.exists():
            raise CallboardError(f"there is no run in {run}: it has no experiment.yaml")
        recipe = read_recipe(str(directory.experiment))
        text = directory.experiment.read_text()
    if text.startswith("---") and not text.endswith("...\n"):
        raise CallboardError(f"experiment.yaml of {run} was cut off: replace it by a copy, or start a new run")
    return parse_experiment(None, {**recipe, "run_dir": str(run)}, options)


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The most similar of some words."""
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return found[0] if found else None


def experiment_settings(experiment: Experiment) -> dict[str, Any]:
    """An experiment as YAML can hold it."""
    agent: Any = experiment.agent
    settings = {field.name: getattr(experiment, field.name) for field in dataclasses.fields(experiment)}
    settings[_AGENT] = {_NAME: agent_name(agent), **{f.name: getattr(agent, f.name) for f in dataclasses.fields(agent)}}
    return _plain(settings)


def _merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with those of `given` in their place; mappings in both are merged, key by key, at any depth."""
    merged = dict(settings)
    for key, value in given.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def _check_keys(keys: Iterable[str], known: Sequence[str]) -> None:
    for key in keys:
        if key not in known:
            near = nearest(key, known)
            raise CallboardError(f"unknown key {key!r}" + (f": did you mean {near!r}?" if near else ""))


def _normalised(options: Sequence[str], parser: jsonargparse.ArgumentParser) -> list[str]:
    """Options with underscores for dashes in their names, which are checked, and `=true` after a flag alone."""
    typed = {action.dest: getattr(action, "_typehint", None) for action in parser._actions}
    known = [name for name in typed if name != "help"]
    result = []
    for option, following in itertools.zip_longest(options, options[1:]):
        if not option.startswith("--"):
            result.append(option)
            continue
        name, equals, value = option[2:].partition("=")
        key = name.replace("-", "_")
        if key not in known and key.partition(".")[0] != "env_options":
            near = nearest(key, known)
            hint = f": did you mean --{near.replace('_', '-')}?" if near else ": see callboard train --help"
            raise CallboardError(f"unknown option --{name}{hint}")
        alone = not equals and (following is None or following.startswith("--"))
        result.append(f"--{key}=true" if alone and typed.get(key) is bool else f"--{key}{equals}{value}")
    return result


def _one_line(message: str) -> str:
    found = re.match(r'Parser key "(?P<key>[^"]+)":\s*(?P<problem>.*)', message, re.DOTALL)
    if found:
        message = f"{found['key']}: {found['problem']}"
    message = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", message)
    return " ".join(message.split())


def _plain(value: Any) -> Any:
    """Settings as YAML can hold them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return str(value) if isinstance(value, pathlib.Path) else value
