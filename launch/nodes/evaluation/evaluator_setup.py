"""What an evaluator evaluates: the policies of a run that learn, together with those that do not."""

from collections.abc import Mapping
from typing import NamedTuple

from ....agents.agent import Agent, Mode, Policy
from ...experiment import Experiment
from ...experiments.checked_run import Run
from ..acting.frozen_policies import fetch_frozen_agents, make_frozen_policies
from ..acting.opponents import Opponents
from ..node import NodeContext, NodeHandle
from .evaluation_setup import EvaluationSetup, OnePolicySetup, SeveralPoliciesSetup


class EvaluatorSetup(NamedTuple):
    """The environments of an evaluator, and the policies that act in them."""

    setup: EvaluationSetup
    learned: dict[str, Policy]
    """The policies that learn, by name."""
    opponents: Opponents | None
    """Gets the weights of the others; None if the environment has one agent."""


def make_evaluator_setup(run: Run, learners: Mapping[str, NodeHandle], context: NodeContext) -> EvaluatorSetup | None:
    """Builds the policies that an evaluator plays with; their weights have to be fetched.

    Args:
      run: the run.
      learners: handles of the learners, by policy.
      context: context of the evaluator; the result is None if the run stops first.
    """
    experiment = run.experiment
    plan = run.plan(evaluation=True)
    if plan is None:
        agent = experiment.agent
        policy = agent.make_policy(agent.make_networks(run.layout), experiment.evaluation_policy_mode())
        return EvaluatorSetup(OnePolicySetup(policy, run.layout), {"": policy}, None)
    saved = fetch_frozen_agents(plan, learners.values(), context)
    if saved is None:
        return None
    context.progress.works_slowly("building networks")
    learned = {}
    for name, agent in plan.learning.items():
        if name in plan.slots:
            layout = plan.layout_in(experiment, name)
            learned[name] = agent.make_policy(agent.make_networks(layout), evaluation_mode(experiment, agent)), layout
    frozen = make_frozen_policies(experiment, plan, saved, lambda agent: evaluation_mode(experiment, agent))
    variables = {name: policy.variables for name, (policy, _) in frozen.items()}
    opponents = Opponents(list(learners.values()), variables, context)
    setup = SeveralPoliciesSetup(plan, {**learned, **frozen}, opponents.choose)
    return EvaluatorSetup(setup, {name: policy for name, (policy, _) in learned.items()}, opponents)


def evaluation_mode(experiment: Experiment, agent: Agent) -> Mode:
    """Returns the mode of an agent's policy in evaluations; one that samples no actions takes the best."""
    return "sample" if experiment.evaluation_mode == "sampled" and "sample" in agent.modes() else "evaluate"
