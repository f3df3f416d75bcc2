"""The environments of an experiment, for nodes and tools that act."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ....environments import ONLY_AGENT, BatchedEnvironment, environment_seeds, environment_text, for_evaluation, make
from ....environments.multi_agent.joint_batch import JointBatch
from ....environments.multi_agent.policy_batches import make_policy_batches
from ....environments.multi_agent.policy_view import OneAgentView, PolicyView
from ....errors import CallboardError
from ....specs import EnvironmentSpec, check_same_form
from ...experiments.parts.acting_part import ActingPart
from ...experiments.policy_plan import MemberMapping, PolicyPlan, members_of


def make_environments(
    experiment: ActingPart,
    role: Literal["actor", "evaluator"],
    first_slot: int,
    count: int,
    incarnation: int = 0,
    warn: Callable[[str], object] = logging.warning,
) -> BatchedEnvironment:
    """Makes the environments of one incarnation of a node, each with its own seed, and with the task of evaluations.

    Args:
      experiment: the experiment.
      role: role of the node.
      first_slot: slot of the first environment.
      count: number of environments.
      incarnation: number of earlier incarnations of the node.
      warn: takes a line where observations leave the bounds of their space.
    """
    seeds = environment_seeds(experiment.seed, role, first_slot, count, incarnation)
    slots, env, options = range(first_slot, first_slot + count), experiment.env, experiment.options_of_env
    if role == "actor":
        return make(env, count, seeds, options, slots, first_slot // experiment.envs_per_actor, warn)
    env, options = for_evaluation(env, options)
    environments = make(env, count, seeds, options, slots, warn=warn)
    if experiment.evaluation_task is not None:
        environments.set_task(experiment.evaluation_task)
    return environments


def _check_form(made: Any, specs: Mapping[str, tuple[EnvironmentSpec, EnvironmentSpec]], what: str) -> None:
    """Checks, by policy, that environments have the spaces for which the policies were made; closes others."""
    try:
        for policy, (known, own) in specs.items():
            check_same_form(known, own, f"{what}, policy {policy!r}," if policy else what)
    except CallboardError:
        made.close()
        raise


def make_view(
    experiment: ActingPart,
    role: Literal["actor", "evaluator"],
    first_slot: int,
    count: int,
    plan: PolicyPlan,
    choose: Callable[[str, np.random.Generator], str],
    incarnation: int = 0,
    warn: Callable[[str], object] = logging.warning,
) -> tuple[BatchedEnvironment, PolicyView]:
    """Makes the environments of `make_environments` for the policies of a plan, however many agents they have.

    The arguments that are not listed are those of `make_environments`.

    Args:
      plan: the policies, and which agents they play for.
      choose: returns the member of a policy of snapshots to play with, see `MemberMapping`.

    Returns:
      The environments, and how the policies see them.
    """
    what = f"the environments {environment_text(experiment.env)!r} of this {role} and of the check of the run"
    if ONLY_AGENT in plan.slots:
        single = make_environments(experiment, role, first_slot, count, incarnation, warn)
        _check_form(single, {"": (plan.slots[ONLY_AGENT].spec, single.spec)}, what)
        return single, OneAgentView()
    seeds = environment_seeds(experiment.seed, role, first_slot, count, incarnation)
    slots, env, options = range(first_slot, first_slot + count), experiment.env, experiment.options_of_env
    actor = first_slot // experiment.envs_per_actor if role == "actor" else None
    if role == "evaluator":
        env, options = for_evaluation(env, options)
    assert not isinstance(env, Sequence) or isinstance(env, str)
    members = members_of(plan.policies)
    names = [member for name in plan.slots for member in members.get(name, (name,))]
    mapping = MemberMapping(plan.mapping, members, choose)
    batches = make_policy_batches(env, count, seeds, options, mapping, names, slots, actor, **experiment.agent_options)
    found = {
        policy: (plan.slots[own].spec, batches.slots[policy].spec)
        for own in plan.slots
        for policy in members.get(own, (own,))
        if policy in batches.slots
    }
    _check_form(batches, found, what)
    environments = JointBatch(batches, list(plan.learning))
    if role == "evaluator" and experiment.evaluation_task is not None:
        environments.set_task(experiment.evaluation_task)
    return environments, environments
