"""Environments and compiled policies of an experiment, for nodes and tools that act."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ....agents.acting import CompiledPolicy
from ....agents.agent import Mode
from ....data import Layout
from ....environments import BatchedEnvironment, environment_seeds, for_evaluation, make
from ....environments.multi_agent.joint_batch import JointBatch
from ....environments.multi_agent.policy_batches import make_policy_batches
from ....environments.multi_agent.policy_slots import PolicyMapping
from ...experiment import Experiment


def make_environments(
    experiment: Experiment,
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


def make_joint_environments(
    experiment: Experiment,
    role: Literal["actor", "evaluator"],
    first_slot: int,
    count: int,
    mapping: PolicyMapping,
    policies: Sequence[str],
    counted: Sequence[str],
    incarnation: int = 0,
) -> JointBatch:
    """Makes the environments of `make_environments`, if they have several agents.

    The arguments that are not listed are those of `make_environments`.

    Args:
      mapping: chooses the policy of each agent.
      policies: names of all policies.
      counted: the policies whose agents' rewards count.
    """
    seeds = environment_seeds(experiment.seed, role, first_slot, count, incarnation)
    slots, env, options = range(first_slot, first_slot + count), experiment.env, experiment.options_of_env
    actor = first_slot // experiment.envs_per_actor if role == "actor" else None
    if role == "evaluator":
        env, options = for_evaluation(env, options)
    assert not isinstance(env, Sequence) or isinstance(env, str)
    batches = make_policy_batches(
        env, count, seeds, options, mapping, policies, slots, actor, **experiment.agent_options
    )
    environments = JointBatch(batches, counted)
    if role == "evaluator" and experiment.evaluation_task is not None:
        environments.set_task(experiment.evaluation_task)
    return environments


def compile_policy(
    experiment: Experiment,
    layout: Layout,
    networks: Any,
    mode: Mode,
    first_slot: int,
    count: int,
    incarnation: int = 0,
) -> CompiledPolicy:
    """Compiles the agent's policy for slots `first_slot` to `first_slot + count`, for one incarnation of a node."""
    policy = experiment.agent.make_policy(networks, mode)
    slots = np.arange(first_slot, first_slot + count)
    return CompiledPolicy(policy, layout, slots, experiment.seed, incarnation)
