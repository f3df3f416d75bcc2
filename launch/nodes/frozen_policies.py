"""The policies that do not learn, as a node that acts builds them; their weights come with `opponents`."""

from collections.abc import Callable

from ...agents.agent import Agent, Mode, Policy
from ...data import Layout
from ..experiment import Experiment
from ..frozen_weights import frozen_agent
from ..policy_plan import PolicyPlan, members_of
from ..policy_settings import FrozenPolicy, Snapshots


def make_frozen_policies(
    experiment: Experiment, plan: PolicyPlan, mode_of: Callable[[Agent], Mode]
) -> dict[str, tuple[Policy, Layout]]:
    """Builds the networks and policies of a plan that do not learn but have weights.

    Args:
      experiment: the experiment.
      plan: its policies.
      mode_of: returns the mode in which an agent's policy acts.

    Returns:
      The policies with their layouts, by name; those of snapshots by the names of the members.
    """
    members = members_of(plan.policies)
    frozen: dict[str, tuple[Policy, Layout]] = {}
    for name in plan.slots:
        setting = plan.policies[name]
        if isinstance(setting, FrozenPolicy | Snapshots):
            agent = _agent_of(setting, experiment)
            layout = experiment.policy_layout(plan, name)
            for member in members.get(name, (name,)):
                frozen[member] = agent.make_policy(agent.make_networks(layout), mode_of(agent)), layout
    return frozen


def _agent_of(setting: FrozenPolicy | Snapshots, experiment: Experiment) -> Agent:
    if isinstance(setting, FrozenPolicy):
        return frozen_agent(setting)
    agent = experiment.policies[setting.snapshots_of]
    assert isinstance(agent, Agent)
    return agent
