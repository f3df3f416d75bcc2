"""The definition of a study: a matrix of agents, environments, variants and seeds, in YAML.

    description: PPO on two tasks.
    agents:
      - recipe: ppo-cartpole           # a recipe, with settings of its own if needed
        name: ppo
      - impala                         # an agent, with its defaults
    environments: [CartPole-v1, {env: Acrobot-v1, settings: {max_steps: 200000}}]
    variants: [{name: 1 actor, settings: {actors: 1}}, {name: 4 actors, settings: {actors: 4}}]
    grid: {agent.optimizer.learning_rate: [1.0e-3, 1.0e-4]}
    seeds: [1, 2, 3]
    launcher: inline
    report: {goal: 475}

Every combination is a cell, with a run for each seed.  An environment may name the agents that are tried in it.
"""

import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ... import environments
from ...errors import CallboardError, MissingPackage, unknown
from ...launch.experiments.option_parsing import option_name, option_texts
from ...launch.experiments.parts.quantities import Seed
from ...launch.experiments.policy_settings import parse_agent
from ...launch.experiments.run_checks import check_settings
from ...launch.experiments.settings import RECIPES, STUDIES, parse_settings, read_recipe, unknown_file
from ...launch.experiments.yaml_files import read_yaml
from ...launch.launchers.registry import DEFAULT_LAUNCHER, launcher_class, launcher_options, make_launcher
from ...settings.nested_settings import merged_values, nested_values
from ...settings.setting_types import NAME, converted, given_fields, shown
from .comparison import ComparisonSettings
from .run_series import Cell, recipe_of

_MOST_RUNS = 10_000
_MOST_BYTES = 255
"""Bytes in a name of a directory, in most file systems."""
_OF_EACH_RUN = "every run has its own; see seeds"
_NOT_SETTINGS = {
    "agent": "a combination has the agent that it is named after; list it in agents",
    "env": "a combination has the environment that it is named after; list it in environments",
    "seed": _OF_EACH_RUN,
    "run_dir": _OF_EACH_RUN,
}
"""Settings that a study cannot change, with the reason."""


@dataclasses.dataclass(frozen=True)
class AgentEntry:
    """An agent of a study.

    Attributes:
      agent: name of the agent; None takes that of the recipe.
      recipe: a built-in recipe, or the path of a YAML file; relative paths are relative to the working directory.
      name: name in tables; None takes that of the recipe or the agent.
      settings: settings of its runs.
      launcher: launcher of its runs; None takes that of the study.
      seeds: seeds of its runs; None takes those of the study.
    """

    agent: str | None = None
    recipe: str | None = None
    name: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    launcher: str | None = None
    seeds: list[Seed] | None = None

    @property
    def shown_name(self) -> str:
        return self.name or (pathlib.Path(self.recipe).stem if self.recipe else self.agent) or ""


@dataclasses.dataclass(frozen=True)
class EnvironmentEntry:
    """An environment of a study.

    Attributes:
      env: name of the environment.
      name: name in directories; None takes that of the environment.
      settings: settings of the runs in it.
      seeds: seeds of the runs in it; None takes those of the agent or the study.
      agents: names of the agents that are tried in it; None takes all of the study.
    """

    env: str
    name: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    seeds: list[Seed] | None = None
    agents: list[str] | None = None


@dataclasses.dataclass(frozen=True)
class VariantEntry:
    """Settings that are tried with every agent in every environment.

    Attributes:
      name: name in tables; empty adds nothing to that of the agent.
      settings: the settings.
      launcher: launcher of its runs; None takes that of the agent or the study.
      seeds: seeds of its runs; None takes those of the environment, the agent or the study.
    """

    name: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    launcher: str | None = None
    seeds: list[Seed] | None = None


@dataclasses.dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
      agents: the agents; a text names one with its defaults.
      environments: the environments; a text names one.  None keeps those of the recipes.
      variants: variants of the settings.
      grid: lists of values by setting, of which all combinations are tried.
      seeds: seeds of each combination.
      settings: settings of all runs.
      launcher: launcher of the runs.
      launcher_options: its options, by their names on the command line, such as `ray_wait`.
      report: how the runs are compared, see `ComparisonSettings`.
      description: text at the beginning of the report.
    """

    agents: list[AgentEntry]
    environments: list[EnvironmentEntry] | None = None
    variants: list[VariantEntry] = dataclasses.field(default_factory=lambda: [VariantEntry()])
    grid: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    seeds: list[Seed] = dataclasses.field(default_factory=lambda: [1, 2, 3])
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    launcher: str = DEFAULT_LAUNCHER
    launcher_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    report: ComparisonSettings = ComparisonSettings()
    description: str = ""

    def with_seeds(self, seeds: Sequence[int]) -> "Study":
        """Returns the study with these seeds of every combination."""

        def without(entries: Sequence[Any]) -> list[Any]:
            return [dataclasses.replace(entry, seeds=None) for entry in entries]

        return dataclasses.replace(
            self,
            seeds=list(seeds),
            agents=without(self.agents),
            environments=None if self.environments is None else without(self.environments),
            variants=without(self.variants),
        )


@dataclasses.dataclass(frozen=True)
class StudyCell(Cell):
    """A cell of a study.

    Attributes:
      variant: agent and variant, as tables name them.
      missing: the package without which its environment cannot be made.
    """

    variant: str = ""
    missing: MissingPackage | None = None

    @property
    def env(self) -> str:
        return str(self.recipe["env"])


def study_names() -> list[str]:
    """Returns the names of the studies that ship with Callboard."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def read_study(name: str) -> Study:
    """Reads a study, by name, or from a file of the user's, by path.

    Raises:
      CallboardError: it does not exist, or is not valid; one line that says how to fix it.
    """
    path = pathlib.Path(name)
    if name in study_names():
        path = STUDIES / f"{name}.yaml"
    elif not name or "\0" in name or not path.exists():
        raise unknown_file("study", name, study_names(), {"recipe": RECIPES})
    try:
        return parse_study(read_yaml(path))
    except CallboardError as error:
        raise CallboardError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def parse_study(content: Any) -> Study:
    """Returns the study with these values of its fields.

    Raises:
      CallboardError: a key is unknown, or a value is not valid.
    """
    if not isinstance(content, Mapping):
        raise CallboardError(f"a study must hold settings, such as `agents: [impala]`, not {shown(content)}")
    for key in ("agents", "environments", "variants"):
        entries, kinds = content.get(key), Mapping if key == "variants" else Mapping | str
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            if not isinstance(entry, kinds):
                what = "settings by name" if key == "variants" else "a name, or settings by name"
                raise CallboardError(f"{key}, entry {index + 1}, must be {what}, not {shown(entry)}")
    named = {
        **content,
        **{
            key: [{field: entry} if isinstance(entry, str) else entry for entry in content[key]]
            for key, field in (("agents", "agent"), ("environments", "env"))
            if isinstance(content.get(key), list)
        },
    }
    places = named.get("environments")
    for index, entry in enumerate(places if isinstance(places, list) else []):
        if isinstance(entry, Mapping) and "env" not in entry:
            raise CallboardError(f"environments, entry {index + 1}, needs env: the name of an environment")
    values = given_fields(Study, named)
    if "agents" not in values:
        raise CallboardError("a study needs agents, such as `agents: [impala]` or `agents: [{recipe: ppo-cartpole}]`")
    study = Study(**values)
    study.report.check()
    return study


def cells_of(study: Study, options: Sequence[str] = (), only: str = "") -> list[StudyCell]:
    """Returns the cells of a study, and checks the settings of each.

    Args:
      study: the study.
      options: options of `callboard train` for all runs, which override the settings of the study.
      only: part of the names of the cells that are returned.

    A cell whose environment needs a package that is not installed has `missing`.

    Raises:
      CallboardError: a cell's settings are not valid, two have the same name, or the study has no runs, or too many.
    """
    for name in ("agents", "environments", "variants", "seeds"):
        if getattr(study, name) == []:
            raise CallboardError(f"the matrix has no runs: {name} is empty")
    for name, values in study.grid.items():
        if not values:
            raise CallboardError(f"the matrix has no runs: grid.{name} is empty")
        for other in study.grid:
            if other.startswith(f"{name}."):
                raise CallboardError(f"grid.{name} and grid.{other} set the same: leave one of them out")
    _check_fixed(dict.fromkeys(option_texts(options)), study.environments is not None)
    _check_size(study)
    cells: dict[str, StudyCell] = {}
    for cell in _cells(study, options, only):
        if len(os.fsencode(cell.name)) > _MOST_BYTES:
            raise CallboardError(
                f"the directory of {cell.name[:40]!r}... would have {len(os.fsencode(cell.name))} bytes in its name, "
                f"more than the {_MOST_BYTES} of file systems: give agent, environment or variant a shorter name"
            )
        if cell.name.lower() in cells:
            raise CallboardError(f"two combinations are named {cell.name!r}; give one of them another name")
        cells[cell.name.lower()] = cell
    if not cells and only:
        raise CallboardError(f"the matrix has no runs whose name contains {only!r}; see --list")
    if not cells:
        raise CallboardError("the matrix has no runs: the agents of every environment are empty")
    for env in () if only else study.report.score_ranges:
        if env not in (envs := dict.fromkeys(cell.env for cell in cells.values())):
            raise unknown("environment in report.score_ranges", env, envs)
    return list(cells.values())


def _check_size(study: Study) -> None:
    """Raises `CallboardError` if a study has too many runs, before it makes their settings."""
    points = math.prod(map(len, study.grid.values()))
    runs = 0
    places: Sequence[EnvironmentEntry | None] = study.environments or [None]
    for agent, environment, variant in itertools.product(study.agents, places, study.variants):
        if _is_tried(agent, environment):
            runs += points * max(1, len(_seeds(study, agent, environment, variant)))
        if runs > _MOST_RUNS:
            raise CallboardError(f"the matrix has more than {_MOST_RUNS:,} runs; shorten its lists")


def _is_tried(agent: AgentEntry, environment: EnvironmentEntry | None) -> bool:
    return environment is None or environment.agents is None or agent.shown_name in environment.agents


def _seeds(
    study: Study, agent: AgentEntry, environment: EnvironmentEntry | None, variant: VariantEntry
) -> Sequence[int]:
    nearest = (variant.seeds, environment.seeds if environment else None, agent.seeds)
    return next((seeds for seeds in nearest if seeds is not None), study.seeds)


def _cells(study: Study, options: Sequence[str], only: str) -> Iterator[StudyCell]:
    points = itertools.product(*([(key, value) for value in values] for key, values in study.grid.items()))
    places: Sequence[EnvironmentEntry | None] = study.environments or [None]
    names = [agent.shown_name for agent in study.agents]
    for place in study.environments or []:
        for known in place.agents or []:
            if known not in names:
                raise unknown(f"agent of {place.env}", known, names)
    tried: dict[tuple[int, int, int, str], str] = {}
    for agent, environment, variant, point in itertools.product(study.agents, places, study.variants, points):
        agent_name = agent.shown_name
        if not _is_tried(agent, environment):
            continue
        values = [f"{key.rpartition('.')[2]} {value}" for key, value in point]
        variant_name = ", ".join(filter(None, [agent_name, variant.name, *values]))
        environment_name = "" if environment is None else environment.name or environment.env
        name = "-".join(_slug(part) for part in (agent_name, environment_name, variant.name, *values) if part)
        if only not in name:
            continue
        try:
            seeds = _seeds(study, agent, environment, variant)
            _check_seeds(seeds)
            recipe = _merged_recipe(study, agent, environment, [variant.settings, dict(point)])
            launcher = variant.launcher or agent.launcher or study.launcher
            checked, missing = _checked_recipe(recipe, launcher, study.launcher_options, options)
        except CallboardError as error:
            raise CallboardError(f"{name or 'agents'}: {error}") from error
        same = (id(agent), id(environment), id(variant), repr(checked))
        if same in tried:
            raise CallboardError(
                f"{tried[same]!r} and {variant_name!r} are the same runs: the grid has a value twice, or an option "
                "overrides it; leave one of them out"
            )
        tried[same] = variant_name
        flags = [f"{option_name(key)}={_option_text(value)}" for key, value in study.launcher_options.items()]
        yield StudyCell(name, checked, seeds, ("--launcher", launcher, *flags), variant_name, missing)


def _check_seeds(seeds: Sequence[int]) -> None:
    if not seeds:
        raise CallboardError("the matrix has no runs: seeds is empty")
    if len(set(seeds)) < len(seeds):
        raise CallboardError(f"a seed is given twice in {shown(list(seeds))}")


def _merged_recipe(
    study: Study, agent: AgentEntry, environment: EnvironmentEntry | None, more: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    if agent.agent is None and agent.recipe is None:
        raise CallboardError("an entry of agents needs agent or recipe, such as {recipe: ppo-cartpole}")
    recipe = read_recipe(agent.recipe) if agent.recipe else {}
    _check_fixed({key: recipe[key] for key in ("seed", "run_dir") if key in recipe}, False)
    if agent.agent is not None:
        of_recipe, values = parse_agent(recipe.get("agent"), "agent")
        if of_recipe not in (None, agent.agent):
            if agent.name is None:
                raise CallboardError(f"the recipe is one of {of_recipe}: give the entry of {agent.agent} a name")
            values = {}  # The hyperparameters of one agent are not those of another.
        recipe["agent"] = {**values, NAME: agent.agent}
    of_environment = {} if environment is None else environment.settings
    for settings in (study.settings, agent.settings, of_environment, *more):
        for key, value in settings.items():
            _check_fixed(nested_values({key: value}), environment is not None)
    if environment is not None:
        of_environment = {**of_environment, "env": environment.env}
        if recipe.get("env") != environment.env:
            recipe = {key: value for key, value in recipe.items() if key not in ("env_options", "env_wrappers")}
    for settings in (study.settings, agent.settings, of_environment, *more):
        for key, value in settings.items():
            recipe = merged_values(recipe, nested_values({key: value}), {})
    return recipe


def _check_fixed(settings: Mapping[str, Any], has_environments: bool) -> None:
    """Raises `CallboardError` if nested settings change what a combination is named after."""
    for key, reason in _NOT_SETTINGS.items():
        value = settings.get(key)
        is_changed = NAME in value if key == "agent" and isinstance(value, Mapping) else key in settings
        if is_changed and (key != "env" or has_environments):
            raise CallboardError(f"{key} is not a setting of a study: {reason}")


def _checked_recipe(
    recipe: dict[str, Any],
    launcher_name: str,
    launcher_values: Mapping[str, Any],
    options: Sequence[str],
) -> tuple[dict[str, Any], MissingPackage | None]:
    settings = parse_settings(None, recipe, options)
    known = launcher_options(launcher_class(launcher_name))
    for key in launcher_values:
        if key not in known:
            raise unknown(f"option of launcher {launcher_name}", key, known)
    values = {key: converted(key, value, known[key].hint) for key, value in launcher_values.items()}
    launcher = make_launcher(launcher_name, values)
    experiment = launcher.fit(settings.without_agent())
    launcher.check(experiment)
    check_settings(experiment)
    missing = None
    try:
        environments.check(experiment.env, experiment.options_of_env)
    except MissingPackage as error:
        missing = error
    return recipe_of(settings), missing


def _option_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _slug(text: str) -> str:
    """Returns a text as part of a directory's name."""
    return re.sub(r"[^\w.=+-]+", "_", text).strip("._") or "_"
