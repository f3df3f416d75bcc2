"""A checked experiment with its layouts and its directory, as every node receives it."""

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Generic, TypeVar

from ...agents import Agent
from ...data import Layout
from ...environments import ONLY_AGENT
from ...specs import EnvironmentSpec
from ..run_directory.layout import RunDirectory
from .experiment import Experiment
from .parts.acting_part import ActingPart
from .parts.environment_part import EpisodesPart, PoliciesPart
from .parts.output_part import CheckpointsPart, OutputPart, RecordingPart
from .parts.placement_part import EvaluationPart, LimitsPart, PlacementPart, ServerPart, WarmStartPart
from .policy_plan import Layouts, PolicyPlan, make_plan

Part = TypeVar("Part")


class _PartOf(Generic[Part]):
    """The experiment of a run as one of its parts; an attribute like others once it has been read."""

    def __init__(self, part: type[Part]):
        self._part = part

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    def __get__(self, run: "Run", kind: type) -> Part:
        part = vars(run)[self._name] = run.experiment
        assert isinstance(part, self._part)
        return part


@dataclasses.dataclass(frozen=True)
class Run:
    """A checked experiment and the directory it writes to; every node receives it.

    A run whose environment has one agent has one policy, without a name.
    """

    experiment: Experiment
    layout: Layout
    """The return value of `Experiment.check`."""
    directory: RunDirectory
    controlled: bool = False
    """Whether a `Session` controls the run, which then begins with a pause."""
    policies: Mapping[str, Layout] = dataclasses.field(default_factory=dict)
    """The layouts of the policies that learn, by name; by default, that of the only one."""
    policy: str = ""
    """The policy whose run this is, see `of_policy`; empty for the whole run."""
    agents: Mapping[str, EnvironmentSpec] = dataclasses.field(default_factory=dict)
    """The spec of each agent of the environment; by default, of the only one."""
    start: str = ""
    """Id of this start of the run: a resumed run has another one, a restarted node the same."""

    # What nodes read of the experiment.
    acting = _PartOf(ActingPart)
    checkpoints = _PartOf(CheckpointsPart)
    environment = _PartOf(PoliciesPart)
    episodes = _PartOf(EpisodesPart)
    evaluation = _PartOf(EvaluationPart)
    limits = _PartOf(LimitsPart)
    output = _PartOf(OutputPart)
    placement = _PartOf(PlacementPart)
    recording = _PartOf(RecordingPart)
    server = _PartOf(ServerPart)
    warm_start = _PartOf(WarmStartPart)

    @property
    def agent(self) -> Agent:
        """The agent of the run's only policy, or the one that its policies vary."""
        return self.experiment.agent

    def __post_init__(self) -> None:
        if not self.policies:
            object.__setattr__(self, "policies", {self.policy: self.layout})

    @classmethod
    def of(cls, experiment: Experiment, layouts: Layouts, directory: RunDirectory, controlled: bool = False) -> "Run":
        """Returns the run of an experiment whose check has returned these layouts."""
        start = uuid.uuid4().hex
        return cls(experiment, layouts.whole, directory, controlled, layouts.policies, "", layouts.agents, start)

    def plan(self, evaluation: bool = False) -> PolicyPlan:
        """Returns the policies of the run, and which agents they play for.

        Args:
          evaluation: whether the mapping of evaluations is meant, not that of training.
        """
        return make_plan(self.experiment, self.agents or {ONLY_AGENT: self.layout.spec}, evaluation)

    def of_policy(self, name: str) -> "Run":
        """Returns the run as the nodes of one of its policies see it: with its agent, its layout and its directory."""
        if name == self.policy:
            return self
        layout = self.policies[name]
        agent = self.experiment.policies.get(name, self.experiment.agent)
        experiment = self.experiment.for_policy(agent, layout)
        return Run(experiment, layout, self.directory.of_policy(name), self.controlled, policy=name, start=self.start)

    @property
    def policy_runs(self) -> "list[Run]":
        """The run of every policy that learns; of the only one, the run itself."""
        return [self.of_policy(name) for name in self.policies]

    def name_of(self, label: str, number: int) -> str:
        """Returns the name of a node of this run: `learner/0`, or `learner/red/0` of the policy `red`."""
        return f"{label}/{self.policy}/{number}" if self.policy else f"{label}/{number}"
