"""A checked experiment with its layouts and its directory, as every node receives it."""

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from ...data import Layout
from ...specs import EnvironmentSpec
from ..experiment import Experiment
from ..run_directory.layout import RunDirectory
from .policy_plan import Layouts, PolicyPlan, make_plan


class Run(NamedTuple):
    """A checked experiment and the directory it writes to; every node receives it."""

    experiment: Experiment
    layout: Layout
    """The return value of `Experiment.check`."""
    directory: RunDirectory
    controlled: bool = False
    """Whether a `Session` controls the run, which then begins with a pause."""
    policies: Mapping[str, Layout] = {}
    """The layouts of the policies that learn, by name, if the environment has several agents; else empty."""
    policy: str = ""
    """The policy that this part of the run trains, see `of_policy`; empty for the whole run."""
    agents: Mapping[str, EnvironmentSpec] = {}
    """The spec of each agent of the environment, if it has several; else empty."""
    start: str = ""
    """Id of this start of the run: a resumed run has another one, a restarted node the same."""

    @classmethod
    def of(cls, experiment: Experiment, layouts: Layouts, directory: RunDirectory, controlled: bool = False) -> "Run":
        """Returns the run of an experiment whose check has returned these layouts."""
        start = uuid.uuid4().hex
        return cls(experiment, layouts.whole, directory, controlled, layouts.policies, "", layouts.agents, start)

    def plan(self, evaluation: bool = False) -> PolicyPlan | None:
        """Returns the policies of a run whose environment has several agents; None if it has one.

        Args:
          evaluation: whether the mapping of evaluations is meant, not that of training.
        """
        return make_plan(self.experiment, self.agents, evaluation) if self.agents else None

    def of_policy(self, name: str) -> "Run":
        """Returns the run as the nodes of one of its policies see it: with its agent, its layout and its directory."""
        layout = self.policies[name]
        agent = self.experiment.policies.get(name, self.experiment.agent)
        experiment = self.experiment.for_policy(agent, layout)
        return Run(experiment, layout, self.directory.of_policy(name), self.controlled, policy=name)

    @property
    def parts(self) -> "list[Run]":
        """The part of every policy that learns; the run itself if its environment has one agent."""
        return [self.of_policy(name) for name in self.policies] or [self]

    def name_of(self, label: str, number: int) -> str:
        """Returns the name of a node of this part: `learner/0`, or `learner/red/0` of the policy `red`."""
        return f"{label}/{self.policy}/{number}" if self.policy else f"{label}/{number}"
