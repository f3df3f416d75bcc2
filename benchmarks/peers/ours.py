"""Our side of the same tasks: `callboard train`, counted like the peers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from ... import environments
from ...agents.apex import Apex
from ...agents.impala import Impala
from ...agents.learning.gradient_learner import GradientLearner
from ...agents.policies.ppo_policy import PpoNetworks
from ...agents.ppo import Ppo
from ...agents.ppo_learner import PpoLearner
from ...agents.sac import Sac
from ...data import Layout, Nest, Timestep
from ...environments import BatchedEnvironment
from ...environments.adapters.pettingzoo_names import make_pettingzoo
from ...environments.multi_agent.multi_agent import AgentStep, MultiAgentEnvironment, MultiAgentWrapper
from ...environments.multi_agent.pettingzoo_adapter import PettingZooEnvironment
from ...launch.experiments.settings import read_recipe
from ...networks.network import Network
from ...runtime.interpreter import callboard_command
from ...settings.named_objects import nameable
from ...specs import EnvironmentSpec
from .inside.work import (
    ACTORS,
    BATCH,
    ENVS,
    HIDDEN,
    PONG_ENVS,
    PONG_EPOCHS,
    PONG_MINIBATCHES,
    PONG_RATE,
    PONG_UNROLL,
    REPLAY,
    SPREAD_EPOCHS,
    SPREAD_MINIBATCHES,
    SPREAD_RATE,
    SPREAD_UNROLL,
    UNROLL,
    Played,
    Trained,
    make,
)
from .program import interpreter

_RECIPE = "impala-cartpole"
"""Our best settings for CartPole-v1."""
_SPREAD_RECIPE = "ppo-simple-spread"
_PONG_RECIPE = "ppo-atari"


def _counted(learner: Any, frames: int) -> Any:
    """Return the learner, which from now on counts its updates, each of so many frames."""
    learn, trained = learner.step, Trained()

    def learn_and_count(iterator: Any) -> Any:
        update = learn(iterator)
        trained.update(update.steps * frames)
        return update

    learner.step = learn_and_count
    return learner


@dataclasses.dataclass(frozen=True)
class CountedImpala(Impala):
    """IMPALA that counts the frames of every update."""

    def make_learner(self, networks: Network, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        return _counted(super().make_learner(networks, strategy, layout), self.unroll_length * self.batch_size)


@dataclasses.dataclass(frozen=True)
class CountedPpo(Ppo):
    """PPO that counts the timesteps of every update."""

    def make_learner(self, networks: PpoNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> PpoLearner:
        return _counted(super().make_learner(networks, strategy, layout), self.unroll_length * self.batch_size)


@dataclasses.dataclass(frozen=True)
class CountedApex(Apex):
    """Ape-X that counts its updates."""

    def make_learner(self, networks: Any, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        return _counted(super().make_learner(networks, strategy, layout), 1)


@dataclasses.dataclass(frozen=True)
class CountedSac(Sac):
    """SAC that counts its updates."""

    def make_learner(self, networks: Any, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        return _counted(super().make_learner(networks, strategy, layout), 1)


class CountedScene(MultiAgentWrapper):
    """An environment with several agents whose steps and episodes are counted; returns are sums over all agents."""

    def __init__(self, environment: MultiAgentEnvironment):
        super().__init__(environment)
        self._played = Played()
        self._return = 0.0
        self._length = 0

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        self._return, self._length = 0.0, 0
        return super().reset(seed)

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        steps = super().step(actions)
        self._return += sum(step.reward for step in steps.values())
        self._length += 1
        self._played.steps(1)
        if self.is_over:
            self._played.episode(self._return, self._length)
        return steps


class CountedBatch(BatchedEnvironment):
    """A batch whose steps and episodes are counted.

    Args:
      batch: a batch whose timesteps include the last observation of an episode.
    """

    def __init__(self, batch: BatchedEnvironment):
        self._batch = batch
        self._played = Played()
        self._returns = np.zeros(batch.batch_size)
        self._lengths = np.zeros(batch.batch_size, np.int64)

    @property
    def spec(self) -> EnvironmentSpec:
        return self._batch.spec

    @property
    def batch_size(self) -> int:
        return self._batch.batch_size

    def reset(self) -> Timestep:
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return self._batch.reset()

    def step(self, actions: Nest) -> Timestep:
        timestep = self._batch.step(actions)
        # A timestep that only starts an episode is not an environment step.
        stepped = ~timestep.first
        self._played.steps(int(np.count_nonzero(stepped)))
        self._returns += timestep.reward
        self._lengths += stepped
        if timestep.last.any():
            for env in np.flatnonzero(timestep.last):
                self._played.episode(float(self._returns[env]), int(self._lengths[env]))
            self._returns[timestep.last] = 0.0
            self._lengths[timestep.last] = 0
        return timestep

    def render(self) -> np.ndarray:
        return self._batch.render()

    def close(self) -> None:
        self._batch.close()


@nameable
def cartpole(batch_size: int, seeds: Sequence[int]) -> CountedBatch:
    """Return CartPole-v1 environments as a user would get them."""
    return CountedBatch(environments.make("CartPole-v1", batch_size, seeds))


@nameable
def dqn(batch_size: int, seeds: Sequence[int]) -> CountedBatch:
    """Return the environments of DQN as a user would get them."""
    return CountedBatch(environments.make(REPLAY["dqn"].env, batch_size, seeds))


@nameable
def sac(batch_size: int, seeds: Sequence[int]) -> CountedBatch:
    """Return the environments of SAC as a user would get them."""
    return CountedBatch(environments.make(REPLAY["sac"].env, batch_size, seeds))


@nameable
def pong(batch_size: int, seeds: Sequence[int]) -> CountedBatch:
    """Return Pong of the EnvPool that the peer has, with the options that CleanRL gives it."""
    options = {"env_python": str(interpreter("cleanrl")), "episodic_life": True, "reward_clip": True}
    return CountedBatch(environments.make("envpool:Pong-v5", batch_size, seeds, options))


@nameable
def spread() -> CountedScene:
    """Return the environment with three agents as a user would get it."""
    name = "pettingzoo:mpe.simple_spread_v3"
    return CountedScene(PettingZooEnvironment(make_pettingzoo(name, {}), name))


@nameable
def images() -> gymnasium.Env:
    """Return the image environment that all sides use."""
    return make("images")


def command(task: str, goal: str, seed: int, directory: str) -> list[str]:
    """Return the command line that trains."""
    agent: Any
    if task in REPLAY:
        agent, settings = _replay(task)
    else:
        agent, settings = _ppo(task) if task in ("spread", "pong") else _impala(task, goal)
    settings = {
        "env": f"{__name__}:{task}",
        "actors": ACTORS,
        "envs-per-actor": ENVS,
        "evaluator": "false",
        "max-steps": 10**9,
        "seed": seed,
        "run-dir": f"{directory}/run",
        **settings,
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    return callboard_command("train", f"{__name__}:{agent.__name__}", *options)


def _impala(task: str, goal: str) -> tuple[type[Impala], dict[str, Any]]:
    settings: dict[str, Any] = {}
    if goal == "score":
        recipe = read_recipe(_RECIPE)
        settings |= {"max-steps": recipe["max_steps"], **_agent_settings(recipe)}
    else:
        settings |= {"agent.unroll_length": UNROLL, "agent.batch_size": BATCH // UNROLL}
        settings["agent.network.normalize_observations"] = "false"
        # Policy and value share all layers, as in the peers' networks.
        settings["agent.network.head_sizes"] = "[]"
    if task == "cartpole":
        settings["agent.network.hidden_sizes"] = list(HIDDEN)
    return CountedImpala, settings


def _ppo(task: str) -> tuple[type[Ppo], dict[str, Any]]:
    if task == "pong":
        return CountedPpo, {
            **_agent_settings(read_recipe(_PONG_RECIPE)),
            "actors": 1,
            "envs-per-actor": PONG_ENVS,
            "agent.unroll_length": PONG_UNROLL,
            "agent.batch_size": PONG_ENVS,
            "agent.epochs": PONG_EPOCHS,
            "agent.minibatches": PONG_MINIBATCHES,
            "agent.optimizer.learning_rate": PONG_RATE,
            "agent.value_cost": 0.5,
            "agent.clip_value": "true",
            "agent.clip_decay": "false",
        }
    settings = {
        **_agent_settings(read_recipe(_SPREAD_RECIPE)),
        "agent.unroll_length": SPREAD_UNROLL,
        "agent.batch_size": ACTORS * ENVS,
        "agent.epochs": SPREAD_EPOCHS,
        "agent.minibatches": SPREAD_MINIBATCHES,
        "agent.optimizer.learning_rate": SPREAD_RATE,
        "agent.network.hidden_sizes": list(HIDDEN),
        "agent.network.head_sizes": "[]",
    }
    return CountedPpo, settings


def _replay(task: str) -> tuple[Any, dict[str, Any]]:
    work = REPLAY[task]
    settings = {
        "actors": 1,
        "agent.batch_size": work.batch,
        "agent.replay.size": 100_000,
        "agent.replay.min_size": 1_000,
        "agent.replay.samples_per_insert": work.updates_per_step * work.batch,
        "agent.network.hidden_sizes": list(work.hidden),
        "agent.network.normalize_observations": "false",
        "agent.normalize_rewards": "false",
    }
    if task == "dqn":
        alone = {
            "agent.n_step": 1,
            "agent.network.dueling": "false",
            "agent.network.stream_size": 0,
            "agent.optimizer.learning_rate_decay": "false",
            # The networks are small, and actor and replay have the other core.
            "learner_threads": 1,
        }
        return CountedApex, {**settings, **alone}
    return CountedSac, settings


def _agent_settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe's agent as options."""
    return {f"agent.{name}": value for name, value in recipe["agent"].items() if name != "name"}
