"""A trial of an environment: made, reset, stepped with random actions and closed, as actors do it."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import tree
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ...data import Nest, Timestep
from ...errors import CallboardError
from ..adapters.gymnasium_batch import GymnasiumBatch
from ..adapters.gymnasium_checks import autoreset_mode
from ..adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from ..adapters.single_environments import PROCESSES
from ..batches.observation_values import check_finite_observation
from ..factory import check, environments_in, make
from ..multi_agent.checked_agents import AgentBounds
from ..multi_agent.multi_agent import AgentStep, MultiAgentEnvironment
from ..multi_agent.multi_agent_factory import is_multi_agent, make_multi_agent
from ..python_factory import Factory
from .random_actions import random_actions

Phase = Literal["import", "constructor", "reset", "step", "close"]
"""The part of the environment's code that is being called."""


@dataclasses.dataclass(frozen=True)
class EnvironmentTrial:
    """Settings of a trial of an environment.

    Attributes:
      env: the environment, or a list.
      options: its options.
      agent_options: how one with several agents is presented, see `make_multi_agent`.
      batch_size: number of environments.
      steps: largest number of steps.
      seconds: time after which no other step is begun.
      seed: seed of the environments and of the actions.
    """

    env: Any
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    agent_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batch_size: int = 1
    steps: int = 20
    seconds: float = 1.0
    seed: int = 1


def try_environment(trial: EnvironmentTrial, enter: Callable[[Phase], object], warn: Callable[[str], object]) -> None:
    """Tries an environment; of a list, each.

    Args:
      trial: what is tried.
      enter: called with what is called next of the environment.
      warn: takes a warning, one line.

    Raises:
      CallboardError: the environment cannot be used, for the reason that the message names.
      Exception: the environment has raised it.
    """
    enter("import")
    check(trial.env, trial.options)
    for name, options in environments_in(trial.env, trial.options):
        enter("constructor")
        options = {**options, PROCESSES: False}
        if is_multi_agent(name, options):
            options.pop(PROCESSES)
            _try_agents(trial, name, options, enter, warn)
        else:
            _try_batch(trial, name, options, enter, warn)


def _try_batch(
    trial: EnvironmentTrial,
    name: Factory,
    options: dict[str, Any],
    enter: Callable[[Phase], object],
    warn: Callable[[str], object],
) -> None:
    count = trial.batch_size
    environment = make(name, count, [trial.seed + index for index in range(count)], options, actor=0, warn=warn)
    rng = np.random.default_rng(trial.seed)
    enter("reset")
    timestep = environment.reset()
    check_finite_observation(timestep.observation)
    enter("step")
    deadline = time.monotonic() + trial.seconds
    for _ in range(trial.steps):
        timestep = environment.step(random_actions(environment.spec, timestep.observation, rng, count))
        _check_timestep(timestep)
        if time.monotonic() > deadline:
            break
    enter("close")
    environment.close()
    _try_single_ones(trial, environment, enter, warn)


def _try_single_ones(
    trial: EnvironmentTrial, environment: Any, enter: Callable[[Phase], object], warn: Callable[[str], object]
) -> None:
    """Tries one of the environments that a vector environment of Gymnasium is made of.

    The vector environment copies their observations into arrays of its own, and what those cannot hold is lost.
    """
    while hasattr(environment, "_environment") and not isinstance(environment, GymnasiumVectorBatch):
        environment = environment._environment
    vector = getattr(getattr(environment, "_environment", None), "unwrapped", None)
    if not isinstance(vector, SyncVectorEnv | AsyncVectorEnv):
        return
    if isinstance(vector, AsyncVectorEnv) and autoreset_mode(vector) is AutoresetMode.SAME_STEP:
        warn(
            "an AsyncVectorEnv with AutoresetMode.SAME_STEP begins an episode after each time limit that is not "
            "played: for a list of cases, use AutoresetMode.NEXT_STEP, or a SyncVectorEnv"
        )
    enter("constructor")
    single = GymnasiumBatch([vector.env_fns[0]()], [trial.seed])
    rng = np.random.default_rng(trial.seed)
    enter("reset")
    timestep = single.reset()
    enter("step")
    for _ in range(min(trial.steps, 5)):
        timestep = single.step(random_actions(single.spec, timestep.observation, rng, 1))
    enter("close")
    single.close()


def _try_agents(
    trial: EnvironmentTrial,
    name: Factory,
    options: dict[str, Any],
    enter: Callable[[Phase], object],
    warn: Callable[[str], object],
) -> None:
    environment = make_multi_agent(name, trial.seed, options, 0, 0, **trial.agent_options, bounds=AgentBounds(warn))
    rng = np.random.default_rng(trial.seed)
    enter("reset")
    steps = environment.reset(trial.seed)
    enter("step")
    deadline = time.monotonic() + trial.seconds
    for _ in range(trial.steps):
        if environment.is_over:
            steps = environment.reset()
        else:
            steps = environment.step(agents_actions(environment, steps, rng))
        if time.monotonic() > deadline:
            break
    enter("close")
    environment.close()


def agents_actions(
    environment: MultiAgentEnvironment, steps: Mapping[str, AgentStep], rng: np.random.Generator
) -> dict[str, Nest]:
    """Samples an action for each agent that is present."""
    actions = {}
    for agent, step in steps.items():
        if not (step.terminated or step.truncated):
            spec = environment.specs[agent]
            batch = random_actions(spec, tree.map_structure(lambda leaf: leaf[np.newaxis], step.observation), rng, 1)
            actions[agent] = tree.map_structure(lambda leaf: leaf[0], batch)
    return actions


def _check_timestep(timestep: Timestep) -> None:
    check_finite_observation(timestep.observation)
    if not np.isfinite(timestep.reward).all():
        raise CallboardError(f"'step' gives the reward {timestep.reward[~np.isfinite(timestep.reward)][0]}")
