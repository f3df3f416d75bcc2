"""Environments and compiled policies of an experiment, for nodes and tools that act."""

from typing import Any, Literal

import numpy as np

from ...agents.acting import CompiledPolicy
from ...agents.agent import Mode
from ...data import Layout
from ...environments import BatchedEnvironment, environment_seeds, for_evaluation, make
from ..experiment import Experiment


def make_environments(
    experiment: Experiment, role: Literal["actor", "evaluator"], first_slot: int, count: int, incarnation: int = 0
) -> BatchedEnvironment:
    """Makes the environments of one incarnation of a node, each with its own seed, and with the task of evaluations."""
    seeds = environment_seeds(experiment.seed, role, first_slot, count, incarnation)
    slots, env, options = range(first_slot, first_slot + count), experiment.env, experiment.options_of_env
    if role == "actor":
        return make(env, count, seeds, options, slots, actor=first_slot // experiment.envs_per_actor)
    env, options = for_evaluation(env, options)
    environments = make(env, count, seeds, options, slots)
    if experiment.evaluation_task is not None:
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
