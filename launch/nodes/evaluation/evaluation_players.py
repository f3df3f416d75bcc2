"""The players of evaluations and videos: policies, and the environments made for them."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ....agents.agent import Agent, Mode, Policy
from ....agents.policies.joint_policy import JointPolicy
from ....data import Layout
from ....environments import BatchedEnvironment
from ...experiments.parts.acting_part import ActingPart
from ...experiments.policy_plan import PolicyPlan
from ..acting.acting_environments import make_view
from ..acting.compiled_policies import acting_policies
from ..acting.fixed_policies import make_fixed_policies


def _first_member(policy: str, rng: np.random.Generator) -> str:
    return f"{policy}/0"


@dataclasses.dataclass(frozen=True)
class EvaluationPlayers:
    """The policies that play in evaluations; makes environments for them.

    Attributes:
      plan: the policies, and which agents they play for in evaluations.
      policies: policies with weights and their layouts, by name; of snapshots, by the names of the members.  Without
        them, the environments can be looked at, and not be stepped.
      choose: returns the member of a policy of snapshots to play with, see `MemberMapping`.
    """

    plan: PolicyPlan
    policies: Mapping[str, tuple[Policy, Layout]]
    choose: Callable[[str, np.random.Generator], str] = _first_member

    def make(self, experiment: ActingPart, count: int) -> tuple[BatchedEnvironment, JointPolicy]:
        """Returns a batch of environments, and the policies of all of its slots.

        Args:
          experiment: the experiment, perhaps with other options of the environment.
          count: number of environments.
        """
        environments, view = make_view(experiment, "evaluator", 0, count, self.plan, self.choose)
        return environments, JointPolicy(view, acting_policies(self.plan, self.policies, experiment.seed, 0, count))


def make_evaluated_policies(
    experiment: ActingPart, plan: PolicyPlan, saved: Mapping[str, Agent]
) -> tuple[dict[str, tuple[Policy, Layout]], dict[str, tuple[Policy, Layout]]]:
    """Builds the policies of evaluations, whose weights have to be assigned.

    Args:
      experiment: the experiment.
      plan: its policies in evaluations.
      saved: the agents of those that other runs have learned, by name.

    Returns:
      Those that learn, and the others, with their layouts, by name; those of snapshots by the names of the members.
    """
    learned = {}
    for name, agent in plan.learning.items():
        if name in plan.slots:
            layout = plan.acting_layout_in(experiment, name)
            learned[name] = agent.make_policy(agent.make_networks(layout), evaluation_mode(experiment, agent)), layout
    fixed = make_fixed_policies(experiment, plan, saved, lambda agent: evaluation_mode(experiment, agent))
    return learned, fixed


def evaluation_mode(experiment: ActingPart, agent: Agent) -> Mode:
    """Returns the mode of an agent's policy in evaluations; one that samples no actions takes the best."""
    return "sample" if experiment.evaluation_mode == "sampled" and "sample" in agent.modes() else "evaluate"
