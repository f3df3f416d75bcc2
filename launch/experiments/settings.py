"""Settings given as options and in YAML, and the experiment that they define.

Every field of the agent and of the experiment is an option (`--agent.optimizer.learning-rate 3e-4`, `--max-steps
1000`) and a YAML key (`agent: {optimizer: {learning_rate: 3e-4}}`, `max_steps: 1000`), derived from the dataclasses
themselves.  Options are merged into the values of YAML, and the result is read by `setting_types`, as in Python.
This module does not import TensorFlow until all settings have valid names, types and ranges.
"""

import dataclasses
import enum
import json
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...agents.registry import agent_settings
from ...callbacks import Callbacks
from ...environments.python_factory import factory_name
from ...errors import CallboardError, check_type, message_of, named_as, named_path, suggestion
from ...files.atomic_files import write_file
from ...files.guarded_files import read_regular
from ...messages.caller_words import argument
from ...settings.nested_settings import Field, declared_fields, merged_values, values_of
from ...settings.setting_types import NAME, default_of, given_fields, shown
from ..run_directory.found_runs import no_run
from ..run_directory.layout import RunDirectory
from ..run_directory.remote_storage import Storage, check_run_owner, is_url
from .experiment import Experiment
from .option_parsing import merge_options, option_name
from .policy_settings import (
    AgentSettings,
    as_mappings,
    made_policies,
    owners_named,
    parse_agent,
    parse_policies,
    policy_setting,
)
from .yaml_files import format_yaml, read_yaml

RECIPES = pathlib.Path(__file__).parents[1] / "recipes"
STUDIES = pathlib.Path(__file__).parents[2] / "studies" / "definitions"
_AGENT = "agent"
_BASE = "base"
_COMMANDS = {"recipe": "train --recipe", "study": "study"}
_PLURALS = {"recipe": "recipes", "study": "studies"}
_CLOSEST = 4
"""The most names that the error for an unknown one suggests."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings with valid names, types and ranges, before the experiment is built from them.

    Attributes:
      agent: name of the agent.
      of_agent: plain values of the agent's hyperparameters, nested as in YAML; those left out keep their defaults.
      of_run: the experiment's fields other than the agent; those left out keep their defaults.
    """

    agent: str
    of_agent: Mapping[str, Any]
    of_run: Mapping[str, Any]

    def without_agent(self) -> Experiment:
        """Returns the experiment with None as its agent, for checks that do not involve the agent."""
        return Experiment(agent=cast(Any, None), **self.of_run)

    def experiment(self) -> Experiment:
        """Returns the experiment, and imports the agent's class."""
        try:
            agent = AgentSettings(self.agent, self.of_agent).make()
        except ValueError as error:
            raise CallboardError(f"agent {self.agent!r}: {' '.join(message_of(error).split())}") from error
        policies = made_policies(self.of_run.get("policies", {}))
        return Experiment(agent=agent, **{**self.of_run, "policies": policies})


def parse_experiment(agent: str | None, recipe: Mapping[str, Any], options: Sequence[str]) -> Experiment:
    """Returns the experiment defined by a recipe and command-line options, see `parse_settings`."""
    return parse_settings(agent, recipe, options).experiment()


def parse_settings(agent: str | None, recipe: Mapping[str, Any], options: Sequence[str]) -> Settings:
    """Returns the settings defined by a recipe and command-line options; options override the recipe.

    Options are merged into nested settings: `--env-options.size 5` sets that one environment option and leaves the
    recipe's others unchanged, and `--no-env-options.size` removes it.

    Args:
      agent: name of the agent; None uses the recipe's.
      recipe: contents of the YAML file, see `read_recipe`.
      options: for example `["--agent.optimizer.learning-rate", "3e-4"]`.

    Raises:
      CallboardError: an option or key is unknown (suggests the nearest one), or a value has the wrong type or range.
    """
    check_type("recipe", recipe, Mapping, "settings by name")
    check_type("options", options, Sequence, "a list of texts")
    recipe_agent, of_agent = parse_agent(recipe.get(_AGENT), _AGENT)
    name = agent or recipe_agent
    if name is None:
        of_run = {key: value for key, value in recipe.items() if key != _AGENT}
        given_fields(Experiment, of_run, known=declared_fields(Experiment))
        raise CallboardError("name an agent (callboard train impala ...) or a recipe (--recipe impala-cartpole)")
    if recipe_agent not in (None, name):
        of_agent = {}
    fields = setting_fields(name)
    values = {**recipe, _AGENT: of_agent}
    if "policies" in values:
        values["policies"] = as_mappings(values["policies"])
    with owners_named(name, _AGENT):
        values = merge_options(values, options, fields)
    of_agent = values.pop(_AGENT)
    values = given_fields(Experiment, values, known=fields)
    if not any(values.get(name) for name in ("env", "spaces", "dataset")):
        raise CallboardError("name an environment: --env CartPole-v1")
    if values.get("run_dir") == "":
        raise CallboardError("run_dir is empty: name a directory, or leave it out")
    if isinstance(values.get("run_dir"), str) and not is_url(values["run_dir"]):
        values["run_dir"] = pathlib.Path(values["run_dir"])
    AgentSettings(name, of_agent).check(_AGENT, fields)
    declared: Any = agent_settings(name)
    for field in dataclasses.fields(declared):
        if field.init and default_of(field) is dataclasses.MISSING and field.name not in of_agent:
            key = f"{_AGENT}.{field.name}"
            raise CallboardError(f"{key} has no default; set it with {option_name(key)}")
    if values.get("policies"):
        values["policies"] = parse_policies(values["policies"], name, of_agent)
    return Settings(agent=name, of_agent=of_agent, of_run=values)


def setting_fields(agent: str) -> dict[str, Field]:
    """Returns all settings of a run with that agent, by flat name."""
    of_agent = declared_fields(agent_settings(agent))
    of_run = {name: field for name, field in declared_fields(Experiment).items() if name != _AGENT}
    return {**of_run, **{f"{_AGENT}.{name}": field for name, field in of_agent.items()}}


def read_recipes(names: Sequence[str]) -> dict[str, Any]:
    """Reads recipes, of which later ones override earlier ones; see `read_recipe`."""
    values: dict[str, Any] = {}
    for name in names:
        values = _overridden(values, read_recipe(name))
    return values


def read_recipe(name: str) -> dict[str, Any]:
    """Reads a built-in recipe, by name, or a user's YAML file, by path, and the recipes that it is based on.

    The key `base` names the recipe that the others override, or several: built-in ones, or files by paths relative to
    that of the file.

    Raises:
      CallboardError: it does not exist, is not a YAML mapping, or is based on itself.
    """
    return _read_based(_recipe_path(name, pathlib.Path()), ())


def _read_based(path: pathlib.Path, above: tuple[str, ...]) -> dict[str, Any]:
    real = os.path.realpath(path)
    if real in above:
        raise CallboardError(f"{path} is based on itself; leave base out of it, or name another recipe")
    recipe = _read_recipe_file(path)
    bases = recipe.pop(_BASE, [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise CallboardError(
            f"{path}: base must be the name of a recipe, or the path of a YAML file, not {shown(bases)}"
        )
    try:
        paths = [_recipe_path(base, path.parent) for base in bases]
    except CallboardError as error:
        raise CallboardError(f"{path}: base: {error}") from error
    values: dict[str, Any] = {}
    for base in paths:
        values = _overridden(values, _read_based(base, (*above, real)))
    return _overridden(values, recipe)


def _overridden(values: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a recipe with those of another in their place; groups are merged."""
    before, agent = parse_agent(values.get(_AGENT), _AGENT)
    name, of_agent = parse_agent(recipe.get(_AGENT), _AGENT)
    # The hyperparameters of one agent are not those of another.
    agent = {} if before is not None and name not in (None, before) else agent
    name = name or before
    plain_agents = [{_AGENT: group} if group else {} for group in (agent, of_agent)]
    values, recipe = (
        {**{key: value for key, value in of_run.items() if key != _AGENT}, **group}
        for of_run, group in zip((values, recipe), plain_agents, strict=True)
    )
    for of_run in (values, recipe):
        if "policies" in of_run:
            of_run["policies"] = as_mappings(of_run["policies"])
    try:
        fields = declared_fields(Experiment) if name is None else setting_fields(name)
    except CallboardError:
        fields = {}  # An agent that cannot be imported is reported with the whole settings.
    merged = merged_values(values, recipe, fields)
    if name is not None:
        merged[_AGENT] = {NAME: name, **merged.get(_AGENT, {})}
    return merged


def _recipe_path(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Returns the file of a recipe; paths are relative to a folder."""
    path = folder / named_path(name, "recipe")
    if name in recipe_names():
        return RECIPES / f"{name}.yaml"
    if not name or not os.path.lexists(path):
        raise unknown_file("recipe", path if folder.name else name, recipe_names(), {"study": STUDIES})
    return path


def unknown_file(
    what: str, name: str | pathlib.Path, known: Sequence[str], others: Mapping[str, pathlib.Path]
) -> CallboardError:
    """Returns the error for a name that is neither built in nor the path of a file, with the closest names.

    Args:
      what: `recipe` or `study`.
      name: the name.
      known: names that are built in.
      others: folders with files of other kinds, which may be meant.
    """
    stem = pathlib.PurePath(name).stem
    hints = [
        f"there is a {kind} of that name: callboard {_COMMANDS[kind]} {stem}"
        for kind, folder in others.items()
        if (folder / f"{stem}.yaml").exists()
    ]
    parts = set(stem.lower().replace("_", "-").split("-"))
    alike = sorted(known, key=lambda one: -len(parts & set(one.lower().split("-"))))
    close = [one for one in alike if parts & set(one.lower().split("-"))][:_CLOSEST]
    closest = f"the closest are {', '.join(close)}" if len(close) > 1 else ""
    everything = f"`callboard list {_PLURALS[what]}` lists all"
    hints.append(suggestion(stem, known, closest or f"{everything}, or name a YAML file by its path"))
    return CallboardError(f"unknown {what} {str(name)!r}; {'; '.join(hints)}")


def _read_recipe_file(path: pathlib.Path, links: bool = True) -> dict[str, Any]:
    recipe = read_yaml(path, links)
    if not isinstance(recipe, dict):
        raise CallboardError(f"{path} must hold settings, such as `env: CartPole-v1`")
    try:
        parse_agent(recipe.get(_AGENT), _AGENT)
    except CallboardError as error:
        raise CallboardError(f"{path}: {error}") from error
    return recipe


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def write_experiment(experiment: Experiment, path: pathlib.Path) -> None:
    """Writes YAML from which `read_recipe` and `parse_experiment` restore the same experiment, atomically."""
    run_dir = experiment.run_dir if is_url(experiment.run_dir) else path.parent
    write_file(path, format_experiment(dataclasses.replace(experiment, run_dir=run_dir)))


def format_experiment(experiment: Experiment) -> str:
    """Formats an experiment as YAML.

    Raises:
      CallboardError: it holds a value that YAML cannot represent, such as a Python object in `env_options`.
    """
    try:
        # Marks at the start and the end distinguish a truncated file from one with fewer settings.
        return format_yaml(experiment_settings(experiment), marked=True)
    except ValueError as error:
        raise CallboardError(f"the experiment cannot be written to a file: {error}") from error


def format_recipe(experiment: Experiment) -> str:
    """Formats an experiment as a recipe for people, from which `parse_experiment` restores it."""
    settings = experiment_settings(experiment)
    return format_yaml({key: value for key, value in settings.items() if key != "run_dir" or value is not None})


def settings_by_name(experiment: Experiment) -> dict[str, str]:
    """Returns all settings except the run directory as text, by flat name."""
    settings = experiment_settings(experiment)
    agent = settings.pop(_AGENT)
    del settings["run_dir"]
    of_agent = {f"{_AGENT}.{name}": plain(value) for name, value in values_of(experiment.agent).items()}
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in {_AGENT: agent[NAME], **of_agent, **settings}.items()
    }


def read_experiment(run: str | pathlib.Path, options: Sequence[str] = (), trust: bool = False) -> Experiment:
    """Returns the experiment of a run directory, with options merged into it, see `read_settings`."""
    return read_settings(run, options, trust).experiment()


def read_settings(run: str | pathlib.Path, options: Sequence[str] = (), trust: bool = False) -> Settings:
    """Returns the settings of a run directory, which may be a URL, with options merged into them.

    Args:
      run: the run directory.
      options: options of the command that change settings.
      trust: whether the directory may belong to another user.

    Raises:
      CallboardError: the directory contains no run, or one of another user.
    """
    check_type("trust", trust, bool, "True or False")
    with tempfile.TemporaryDirectory(prefix="callboard-") as local, named_as(local, run):
        directory = RunDirectory(pathlib.Path(local if is_url(run) else run))
        if is_url(run):
            Storage(str(run)).fetch(directory.experiment.name, directory.path)
        if not str(run) or not os.path.lexists(directory.experiment):
            raise no_run(str(run))
        if not trust:
            check_run_owner(run, f"give {argument('trust')}")
        recipe = _read_recipe_file(directory.experiment, links=False)
        text = read_regular(directory.experiment).decode("utf-8-sig")
    if text.startswith("---") and not text.endswith("...\n"):
        raise CallboardError(f"experiment.yaml of {run} was cut off: replace it by a copy, or start a new run")
    return parse_settings(None, {**recipe, "run_dir": str(run)}, options)


def experiment_settings(experiment: Experiment) -> dict[str, Any]:
    """Returns an experiment's settings as values that YAML can represent."""
    agent: Any = experiment.agent
    settings = {field.name: getattr(experiment, field.name) for field in dataclasses.fields(experiment)}
    settings[_AGENT] = policy_setting(agent)
    settings["policies"] = {name: policy_setting(policy) for name, policy in experiment.policies.items()}
    return plain(settings)


def plain(value: Any) -> Any:
    """Converts settings to values that YAML can represent."""
    if isinstance(value, Callbacks):  # They may be of any other kind, too.
        return plain(value.setting())
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, enum.Enum):
        return value.name
    if callable(value):
        return factory_name(value)
    return str(value) if isinstance(value, pathlib.PurePath) else value
