"""A trial of an environment: made, reset, stepped with random actions and closed, as actors do it."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import tree
from dm_env import specs
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ...action_masks import MASK, choice_sizes, has_mask
from ...data import Nest, Timestep
from ...errors import CallboardError
from ...runtime.deadlines import Deadline
from ...specs import EnvironmentSpec, MultiDiscreteArray
from ..adapters.gymnasium_batch import GymnasiumBatch
from ..adapters.gymnasium_checks import autoreset_mode
from ..adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from ..adapters.single_environments import PROCESSES
from ..batches.batched import BatchedEnvironment
from ..batches.observation_values import check_finite_observation
from ..factory import check, environments_in, make
from ..multi_agent.checked_agents import AgentBounds
from ..multi_agent.multi_agent import AgentStep, MultiAgentEnvironment
from ..multi_agent.multi_agent_factory import is_multi_agent, make_separate_agents


def random_actions(spec: EnvironmentSpec, observation: Nest, rng: np.random.Generator, batch_size: int) -> Nest:
    """Samples an action for each environment of a batch.

    Args:
      spec: the environment's spec.
      observation: arrays `[B, ...]`.
      rng: the generator.
      batch_size: B.

    Returns:
      Arrays `[B, ...]`, uniform between the bounds; from a normal distribution where a float has none.
    """
    sizes = choice_sizes(spec.action)
    scores = rng.random((batch_size, int(sizes.sum())))
    if has_mask(observation):
        scores *= np.concatenate(tree.flatten(observation[MASK]), axis=-1) != 0
    choices = iter([part.argmax(-1) for part in np.split(scores, np.cumsum(sizes)[:-1], axis=-1)] if len(sizes) else ())

    def leaf(part: Any) -> np.ndarray:
        if isinstance(part, specs.DiscreteArray | MultiDiscreteArray):
            chosen = [next(choices) for _ in range(np.size(part.num_values))]
            return np.stack(chosen, -1).reshape(batch_size, *part.shape).astype(part.dtype)
        shape = (batch_size, *part.shape)
        low, high = np.broadcast_to(part.minimum, part.shape), np.broadcast_to(part.maximum, part.shape)
        bounded = np.isfinite(low) & np.isfinite(high)
        inside = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
        values = np.where(bounded, inside, np.clip(rng.standard_normal(shape), low, high))
        return np.clip(values.astype(part.dtype), low, high).astype(part.dtype)

    return tree.map_structure(leaf, spec.action)


_SECONDS = 1.0
"""Time after which no other step is begun."""
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
      seed: seed of the environments and of the actions.
    """

    env: Any
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    agent_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batch_size: int = 1
    steps: int = 20
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
        has_agents = is_multi_agent(name, options)
        seeds = range(trial.seed, trial.seed + trial.batch_size)
        environment: Any
        made: list[Any]
        played: Iterator[Any]
        if has_agents:
            bounds = AgentBounds(warn)
            made = make_separate_agents(name, seeds, options, actor=0, bounds=bounds, **trial.agent_options)
            environment = made[0]
            played = random_agent_steps(environment, trial.seed, enter)
        else:
            environment = make(name, len(seeds), seeds, {**options, PROCESSES: False}, actor=0, warn=warn)
            made = [environment]
            played = map(_check_timestep, random_timesteps(environment, trial.seed, enter))
        next(played)
        deadline = Deadline(_SECONDS)
        for _ in itertools.islice(played, trial.steps):
            if deadline.has_passed:
                break
        enter("close")
        for one in made:
            one.close()
        if not has_agents:
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
    for _ in itertools.islice(random_timesteps(single, trial.seed, enter), 1 + min(trial.steps, 5)):
        pass
    enter("close")
    single.close()


def random_timesteps(
    environment: BatchedEnvironment, seed: int, enter: Callable[[Phase], object]
) -> Iterator[Timestep]:
    """Yields the timesteps of a reset, and of steps with random actions, without an end.

    Args:
      environment: the environment.
      seed: seed of the actions.
      enter: called with what is called next of the environment.
    """
    rng = np.random.default_rng(seed)
    enter("reset")
    timestep = environment.reset()
    yield timestep
    enter("step")
    while True:
        actions = random_actions(environment.spec, timestep.observation, rng, environment.batch_size)
        timestep = environment.step(actions)
        yield timestep


def random_agent_steps(
    environment: MultiAgentEnvironment, seed: int, enter: Callable[[Phase], object]
) -> Iterator[dict[str, AgentStep]]:
    """Yields what resets, and steps with random actions, give the agents, without an end; see `random_timesteps`."""
    rng = np.random.default_rng(seed)
    enter("reset")
    steps = environment.reset(seed)
    yield steps
    enter("step")
    while True:
        over = environment.is_over
        steps = environment.reset() if over else environment.step(agents_actions(environment, steps, rng))
        yield steps


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
