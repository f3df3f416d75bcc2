"""The definition of a suite: a study, the scores that others have published, and the peers that we run ourselves.

    title: MinAtar
    order: 2                       # suites with lower numbers come first on the page
    study:                         # as in a file of `callboard study`
      agents: [ppo]
      environments: [MinAtar/Breakout-v1]
      settings: {max_steps: 10000000, evaluate_every: 1000000}
      launcher: inline
    peers: [ppo]                   # agents beside which the one of Stable-Baselines3 runs, with its defaults
    steps_per_second: {ppo: 2000}  # of one core, to run the cheapest cells first
    references:
      - {agent: ppo, env: MinAtar/Breakout-v1, steps: 10000000, mean: 28, source: "gymnax, README"}

A combination of the study is a *cell*, and each side of it, ours and that of the peer, has a file of results.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import annotated_types

from ...errors import CallboardError, MissingPackage, unknown
from ...launch.experiments.yaml_files import read_yaml
from ...settings.setting_types import FiniteFloat, PositiveInt, given_fields
from ...studies.comparison.study_definition import cells_of, parse_study

DEFINITIONS = pathlib.Path(__file__).parent / "definitions"
OURS, PEER = "callboard", "stable-baselines3"
PEER_AGENTS = {"ppo": "ppo", "a2c": "a2c", "apex": "dqn", "sac": "sac", "td3": "td3"}
"""The agent of Stable-Baselines3 of the same family, for agents that have one."""
_STEPS_PER_SECOND = 100.0


@dataclasses.dataclass(frozen=True)
class Reference:
    """A score that somebody has published.

    Attributes:
      agent: our agent of the same family.
      env: our name of the environment.
      steps: environment steps after which it was measured.
      mean: mean over runs.
      source: who published it, and where.
      spread: standard deviation over runs; None if it was not published.
      runs: number of runs; None if it was not published.
      measured: whether it is the return of training episodes, or of an evaluation.
      protocol: what differs from our cell, if anything.
      is_goal: whether the cell is to reach it; others stand beside it.
      name: name of the agent in the study, if it has the same agent several times.
    """

    agent: str
    env: str
    steps: PositiveInt
    mean: FiniteFloat
    source: str
    spread: FiniteFloat | None = None
    runs: PositiveInt | None = None
    measured: Literal["training", "evaluation"] = "evaluation"
    protocol: str = ""
    is_goal: bool = True
    name: str = ""

    def is_of(self, cell: "SuiteCell") -> bool:
        """Whether a cell is to be held against it."""
        same = (self.agent, self.env) == (cell.agent, cell.env)
        return same and self.name in ("", cell.shown_agent)

    @property
    def goal(self) -> float:
        """The score that is to be reached: the mean less the spread."""
        return self.mean - (self.spread or 0.0)


@dataclasses.dataclass(frozen=True)
class Suite:
    """A suite; see the module.

    Attributes:
      title: its heading.
      study: the cells, as a study of `callboard study`.
      description: a paragraph below the heading.
      order: where it stands on the page.
      peers: agents beside which the one of Stable-Baselines3 is run.
      references: published scores.
      steps_per_second: environment steps of a second on one core, by the agent's name in the study, or the agent.
      in_picture: whether its cells are in the picture of all suites; not where the goals are the best that there is.
    """

    title: str
    study: dict[str, Any]
    description: str = ""
    order: Annotated[int, annotated_types.Ge(0)] = 0
    peers: list[str] = dataclasses.field(default_factory=list)
    references: list[Reference] = dataclasses.field(default_factory=list)
    steps_per_second: dict[str, FiniteFloat] = dataclasses.field(default_factory=dict)
    in_picture: bool = True


@dataclasses.dataclass(frozen=True)
class SuiteCell:
    """One side of a cell.

    Attributes:
      suite: name of the suite.
      name: name of the cell, such as `ppo-CartPole-v1`.
      side: `OURS` or `PEER`.
      agent: our agent, whose family the peer's is.
      shown_agent: how the page names it, with what the suite says of its settings.
      env: name of the environment.
      steps: environment steps of a run.
      seeds: seeds of the runs.
      recipe: settings of our runs.
      options: further options of `callboard train`.
      steps_per_second: how fast a core is thought to be.
      missing: the package without which we cannot make the environment here.
    """

    suite: str
    name: str
    side: str
    agent: str
    shown_agent: str
    env: str
    steps: int
    seeds: Sequence[int]
    recipe: Mapping[str, Any]
    options: Sequence[str]
    steps_per_second: float
    missing: MissingPackage | None = None

    @property
    def is_ours(self) -> bool:
        return self.side == OURS

    @property
    def full_name(self) -> str:
        return f"{self.suite}/{self.name}" if self.is_ours else f"{self.suite}/{self.name}.{self.side}"

    @property
    def seconds(self) -> float:
        """Seconds of one run on one core, as it is thought."""
        return self.steps / self.steps_per_second

    @property
    def evaluations(self) -> int:
        """How often the policy is evaluated."""
        return max(1, self.steps // int(self.recipe.get("evaluate_every") or self.steps))


def suite_names() -> list[str]:
    return sorted(path.stem for path in DEFINITIONS.glob("*.yaml"))


def read_suite(name: str) -> Suite:
    """Reads a suite by name.

    Raises:
      CallboardError: there is none of that name, or it is not valid.
    """
    if name not in suite_names():
        raise unknown("suite", name, suite_names())
    content = read_yaml(DEFINITIONS / f"{name}.yaml")
    try:
        values = given_fields(Suite, content)
        for index, values_of_reference in enumerate(values.get("references", [])):
            if not isinstance(values_of_reference, Reference):
                values["references"][index] = Reference(**values_of_reference)
        suite = Suite(**values)
    except (CallboardError, TypeError) as error:
        raise CallboardError(f"suite {name}: {error}") from error
    return suite


def suite_cells(name: str, suite: Suite) -> list[SuiteCell]:
    """Returns both sides of the cells of a suite.

    Raises:
      CallboardError: its study is not valid, or a reference or a peer belongs to no cell.
    """
    found = []
    rates = suite.steps_per_second
    for cell in cells_of(parse_study(suite.study)):
        agent = str(cell.recipe["agent"]["name"])
        side = SuiteCell(
            suite=name,
            name=cell.name,
            side=OURS,
            agent=agent,
            shown_agent=cell.variant,
            env=cell.env,
            steps=int(cell.recipe["max_steps"]),
            seeds=cell.seeds,
            recipe=cell.recipe,
            options=cell.options,
            steps_per_second=float(rates.get(cell.variant, rates.get(agent, _STEPS_PER_SECOND))),
            missing=cell.missing,
        )
        found.append(side)
        if agent in suite.peers:
            found.append(dataclasses.replace(side, side=PEER, missing=None))
    for agent in suite.peers:
        if agent not in PEER_AGENTS:
            raise unknown(f"peer of suite {name}", agent, PEER_AGENTS)
    for reference in suite.references:
        if not any(reference.is_of(cell) for cell in found):
            shown = reference.name or reference.agent
            raise CallboardError(f"suite {name} has no cell for the reference of {shown} on {reference.env}")
    return found
