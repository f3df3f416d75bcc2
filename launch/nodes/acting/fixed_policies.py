"""The policies that do not learn, as a node that acts builds them; their weights come with `opponents`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....agents.agent import Agent, Mode, Policy
from ....data import Layout
from ...experiments.parts.acting_part import LayoutPart
from ...experiments.policy_plan import PolicyPlan, members_of
from ...experiments.policy_settings import Snapshots, TrainedPolicy, made_policies, parse_policies
from ..node import NodeContext, NodeHandle, Unreachable
from .weight_fetching import CALL_SECONDS

_RETRY_SECONDS = 0.05


def fetch_trained_agents(
    plan: PolicyPlan, learners: Iterable[NodeHandle], context: NodeContext
) -> dict[str, Agent] | None:
    """Returns the agents of a plan's saved policies, by policy, from the learner that serves them.

    The runs that they come from may be on another machine than this node.

    Args:
      plan: the policies.
      learners: handles of all learners.
      context: context of the node; the result is None if the run stops first.
    """
    names, settings = list(plan.saved), dict[str, Any]()
    while not set(names) <= settings.keys():
        context.progress.waits("saved policies")
        for learner in learners:
            try:
                settings |= learner.client(CALL_SECONDS).get_trained_agents()
            except Unreachable:
                continue  # It starts, or restarts.
        if not set(names) <= settings.keys() and context.stop.wait(_RETRY_SECONDS):
            return None
    agents = made_policies(parse_policies({name: settings[name] for name in names}, "", {}))
    return {name: agent for name, agent in agents.items() if isinstance(agent, Agent)}


def make_fixed_policies(
    experiment: LayoutPart, plan: PolicyPlan, saved: Mapping[str, Agent], mode_of: Callable[[Agent], Mode]
) -> dict[str, tuple[Policy, Layout]]:
    """Builds the networks and policies of a plan that do not learn but have weights.

    Args:
      experiment: the experiment.
      plan: its policies.
      saved: the agents of those that other runs have learned, by name.
      mode_of: returns the mode in which an agent's policy acts.

    Returns:
      The policies with their layouts, by name; those of snapshots by the names of the members.
    """
    members = members_of(plan.policies)
    fixed: dict[str, tuple[Policy, Layout]] = {}
    for name in plan.slots:
        setting = plan.policies[name]
        if isinstance(setting, TrainedPolicy | Snapshots):
            agent = saved[name] if isinstance(setting, TrainedPolicy) else plan.learning[setting.snapshots_of]
            layout = plan.acting_layout_in(experiment, name)
            for member in members.get(name, (name,)):
                fixed[member] = agent.make_policy(agent.make_networks(layout), mode_of(agent)), layout
    return fixed
