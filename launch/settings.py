"""Settings given as options and in YAML, and the experiment that they define.

Every field of the agent and of the experiment is an option (`--agent.learning-rate 3e-4`, `--max-steps 1000`) and a
YAML key (`agent: {learning_rate: 3e-4}`, `max_steps: 1000`), derived from the dataclasses themselves.  This module does
not import TensorFlow until all settings have valid names and types.
"""

import collections.abc
import copy
import dataclasses
import enum
import inspect
import json
import os
import pathlib
import re
import tempfile
import textwrap
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ..agents.registry import agent_class, agent_name, agent_settings
from ..atomic_files import write_file
from ..errors import CallboardError, suggestion, unknown
from .experiment import Experiment
from .run_directory.layout import RunDirectory
from .run_directory.remote_storage import Storage, is_url
from .setting_types import converted, converted_text, described, field_types, shown
from .yaml_files import format_yaml, read_yaml

RECIPES = pathlib.Path(__file__).parent / "recipes"
_AGENT = "agent"
_NAME = "name"
_REMOVE = "no_"
"""Prefix of options that switch a flag off or remove an entry: `--no-evaluator`, `--no-env-options.size`."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings with valid names and types, before the experiment is built from them.

    Attributes:
      agent: name of the agent.
      of_agent: the agent's hyperparameters; those left out keep their defaults.
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
            agent = agent_class(self.agent)(**self.of_agent)
        except ValueError as error:
            raise CallboardError(f"agent {self.agent!r}: {' '.join(str(error).split())}") from error
        return Experiment(agent=agent, **self.of_run)


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
      options: for example `["--agent.learning-rate", "3e-4"]`.

    Raises:
      CallboardError: an option or key is unknown (suggests the nearest one), or a value has the wrong type.
    """
    settings = {key: value for key, value in recipe.items() if key != _AGENT}
    of_agent = _agent_of(recipe)
    recipe_agent = of_agent.pop(_NAME, None)
    if not isinstance(recipe_agent, str | None):
        raise CallboardError(f"agent.name must be the name of an agent, such as impala, not {shown(recipe_agent)}")
    name = agent or recipe_agent
    if name is None:
        raise CallboardError("name an agent (callboard train impala ...) or a recipe (--recipe impala-cartpole)")
    if recipe_agent not in (None, name):
        of_agent = {}
    types = setting_types(name)
    flat = {**settings, **{f"{_AGENT}.{key}": value for key, value in of_agent.items()}}
    _check_keys(flat, list(types))
    values = {key: converted(key, value, types[key]) for key, value in flat.items()}
    apply_options(values, options, types)
    if not values.get("env"):
        raise CallboardError("name an environment: --env CartPole-v1")
    for key in _needed(agent_settings(name)):
        if key not in values:
            raise CallboardError(f"{key} has no default: give it by {_option(key)}")
    if values.get("run_dir") == "":
        raise CallboardError("run_dir is empty: name a directory, or leave it out")
    if isinstance(values.get("run_dir"), str) and not is_url(values["run_dir"]):
        values["run_dir"] = pathlib.Path(values["run_dir"])
    prefix = f"{_AGENT}."
    return Settings(
        agent=name,
        of_agent={key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)},
        of_run={key: value for key, value in values.items() if not key.startswith(prefix)},
    )


def setting_types(agent: str) -> dict[str, Any]:
    """Returns the annotations of all settings of a run with that agent, by name (such as `agent.learning_rate`)."""
    of_run = {name: hint for name, hint in field_types(Experiment).items() if name != _AGENT}
    return {**of_run, **{f"{_AGENT}.{name}": hint for name, hint in field_types(agent_settings(agent)).items()}}


def format_help(agent: str) -> str:
    """Lists all settings of a run with that agent as options, with their descriptions and defaults."""
    return "\n\n".join(
        [
            format_options("the run", Experiment),
            format_options(f"the agent {agent}", agent_settings(agent), f"{_AGENT}."),
            "An entry of nested settings is set by its name (--env-options.size 5), and removed likewise\n"
            "(--no-env-options.size); --no-NAME switches a flag off.",
        ]
    )


def format_options(title: str, settings: Any, prefix: str = "") -> str:
    """Lists the fields of a dataclass as options, with their descriptions and defaults.

    Args:
      title: whose options they are.
      settings: the dataclass.
      prefix: beginning of the names of the options.
    """
    lines = [f"options of {title}:"]
    texts = _attribute_texts(settings.__doc__ or "")
    hints = field_types(settings)
    for field in dataclasses.fields(settings):
        if field.name == _AGENT and not prefix:
            continue
        lines.append(f"  {_option(prefix + field.name)}: {described(hints[field.name])}{_default_text(field)}")
        if field.name in texts:
            lines += textwrap.wrap(texts[field.name], 110, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def read_recipe(name: str) -> dict[str, Any]:
    """Reads a built-in recipe, by name, or a user's YAML file, by path.

    Raises:
      CallboardError: it does not exist, or is not a YAML mapping.
    """
    path = pathlib.Path(name)
    if name in recipe_names():
        path = RECIPES / f"{name}.yaml"
    elif "\0" in name or not os.path.lexists(path):
        known = f"choose from {', '.join(recipe_names())}, or name a YAML file by its path"
        raise CallboardError(f"unknown recipe {name!r}; {suggestion(path.stem, recipe_names(), known)}")
    recipe = read_yaml(path)
    if not isinstance(recipe, dict):
        raise CallboardError(f"{path} must hold settings, such as `env: CartPole-v1`")
    try:
        _agent_of(recipe)
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


def settings_by_name(experiment: Experiment) -> dict[str, str]:
    """Returns all settings except the run directory as text, by the names of their options (`agent.learning_rate`)."""
    settings = experiment_settings(experiment)
    agent = {f"{_AGENT}.{name}" if name != _NAME else _AGENT: value for name, value in settings.pop(_AGENT).items()}
    del settings["run_dir"]
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in {**agent, **settings}.items()
    }


def read_experiment(run: str | pathlib.Path, options: Sequence[str] = ()) -> Experiment:
    """Returns the experiment of a run directory, with options merged into it, see `read_settings`."""
    return read_settings(run, options).experiment()


def read_settings(run: str | pathlib.Path, options: Sequence[str] = ()) -> Settings:
    """Returns the settings of a run directory, which may be a URL, with options merged into them.

    Raises:
      CallboardError: the directory contains no run.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-") as local:
        directory = RunDirectory(pathlib.Path(local if is_url(run) else run))
        if is_url(run):
            Storage(str(run)).fetch(directory.experiment.name, directory.path)
        if not str(run) or not os.path.lexists(directory.experiment):
            raise CallboardError(f"there is no run in {str(run) or repr('')}: it has no experiment.yaml")
        recipe = read_recipe(str(directory.experiment))
        text = directory.experiment.read_text(encoding="utf-8")
    if text.startswith("---") and not text.endswith("...\n"):
        raise CallboardError(f"experiment.yaml of {run} was cut off: replace it by a copy, or start a new run")
    return parse_settings(None, {**recipe, "run_dir": str(run)}, options)


def experiment_settings(experiment: Experiment) -> dict[str, Any]:
    """Returns an experiment's settings as values that YAML can represent."""
    agent: Any = experiment.agent
    settings = {field.name: getattr(experiment, field.name) for field in dataclasses.fields(experiment)}
    settings[_AGENT] = {_NAME: agent_name(agent), **{f.name: getattr(agent, f.name) for f in dataclasses.fields(agent)}}
    return _plain(settings)


def _needed(settings: Any) -> list[str]:
    """Returns the agent's settings that have no default."""
    defaults = (dataclasses.MISSING, dataclasses.MISSING)
    fields = dataclasses.fields(settings)
    return [f"{_AGENT}.{f.name}" for f in fields if f.init and (f.default, f.default_factory) == defaults]


def _agent_of(recipe: Mapping[str, Any]) -> dict[str, Any]:
    agent = recipe.get(_AGENT)
    if agent is not None and not isinstance(agent, Mapping):
        raise CallboardError(f"agent must hold settings, such as `agent: {{name: {shown(agent)}}}`")
    return dict(agent or {})


def _check_keys(keys: Iterable[str], known: Sequence[str]) -> None:
    for key in keys:
        if key not in known:
            raise unknown("key", key, known, "see callboard train --help")


def apply_options(values: dict[str, Any], options: Sequence[str], types: Mapping[str, Any]) -> None:
    """Applies options to `values`, which are flat except for settings that are nested themselves."""
    remaining = list(options)
    while remaining:
        option = remaining.pop(0)
        name, equals, text = option[2:].partition("=")
        if not option.startswith("--") or not name:
            raise CallboardError(f"{shown(option)} is no option: options begin with --, as in --max-steps 1000")
        path = name.replace("-", "_")
        is_removal = path.startswith(_REMOVE) and _setting_of(path, types) is None
        key = _setting_of(path.removeprefix(_REMOVE) if is_removal else path, types)
        if key is None:
            raise unknown("option", f"--{name}", map(_option, types), "see callboard train --help")
        entries = _entries(name, path.removeprefix(_REMOVE) if is_removal else path, key)
        if is_removal:
            if equals:
                raise CallboardError(f"--{name} takes no value")
            _remove(values, key, entries, name, types[key])
            continue
        alone = not remaining or remaining[0].startswith("--")
        if not equals and not (alone and types[key] is bool):
            if alone:
                raise CallboardError(f"--{name} needs a value: {described(Any if entries else types[key])}")
            text = remaining.pop(0)
        elif not equals:
            text = "true"
        _set(values, key, entries, text, types)


def _setting_of(path: str, types: Mapping[str, Any]) -> str | None:
    """Returns the setting that an option's name refers to, either as a whole or by one of its entries."""
    return next((key for key in types if path == key or (path.startswith(f"{key}.") and _is_nested(types[key]))), None)


def _is_nested(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or hint is dict or typing.get_origin(hint) in (dict, collections.abc.Mapping)


def _entries(name: str, path: str, key: str) -> list[str]:
    """Returns the path of an entry inside a setting, as the user wrote it: names of entries may contain dashes."""
    rest = path[len(key) :]
    entries = name[len(name) - len(rest) :].split(".")[1:] if rest else []
    if not all(entries):
        raise CallboardError(f"--{name} names no entry of {_option(key)}: write {_option(key)}.NAME VALUE")
    return entries


def _set(values: dict[str, Any], key: str, entries: list[str], text: str, types: Mapping[str, Any]) -> None:
    hint = types[key]
    value: Any
    if dataclasses.is_dataclass(hint):
        before: Any = dataclasses.asdict(values[key]) if key in values else {}
        names = [entry.replace("-", "_") for entry in entries]
        value = converted_text(".".join([key, *names]), text, _hint_at(hint, names, key) if names else dict)
        values[key] = converted(key, _merged(before, _nested(names, value)), hint)
    elif entries:
        value = converted_text(".".join([key, *entries]), text, Any)
        values[key] = _merged(values.get(key) or {}, _nested(entries, value))
    else:
        value = converted_text(key, text, hint)
        before = values.get(key)
        values[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value


def _remove(values: dict[str, Any], key: str, entries: list[str], name: str, hint: Any) -> None:
    if not entries:
        if hint is not bool:
            raise CallboardError(f"--{name} is no flag: {_option(key)} is {described(hint)}")
        values[key] = False
        return
    within: Any = copy.deepcopy(values.get(key) or {})
    whole = within
    for entry in entries[:-1]:
        within = within.get(entry) if isinstance(within, Mapping) else None
    if not isinstance(within, dict) or entries[-1] not in within:
        names = ", ".join(within) if isinstance(within, Mapping) and within else "none"
        raise CallboardError(f"--{name} removes an entry that is not set: there are {names}")
    del within[entries[-1]]
    values[key] = whole


def _hint_at(hint: Any, names: Sequence[str], key: str) -> Any:
    """Returns the annotation of a field inside a nested dataclass."""
    for name in names:
        hints = field_types(hint) if dataclasses.is_dataclass(hint) else {}
        if name not in hints:
            raise CallboardError(f"unknown option {_option(key)}.{name}: there are {', '.join(hints) or 'none'}")
        hint = hints[name]
    return hint


def _nested(names: Sequence[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


def _merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `settings` updated with `given`; mappings in both are merged recursively."""
    merged = dict(settings)
    for key, value in given.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _default_text(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return " (needed)"
    return f" ({json.dumps(_plain(value))})"


def _attribute_texts(docstring: str) -> dict[str, str]:
    """Returns the descriptions in the `Attributes:` section of a docstring, by name."""
    _, _, section = inspect.cleandoc(docstring).partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        found = re.match(r" {2,4}(\w+): (.*)", line)
        if found:
            name = found[1]
            texts[name] = found[2]
        elif name:
            texts[name] += f" {line.strip()}"
    return texts


def _plain(value: Any) -> Any:
    """Converts settings to values that YAML can represent."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, enum.Enum):
        return value.name
    if callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return str(value) if isinstance(value, pathlib.PurePath) else value
