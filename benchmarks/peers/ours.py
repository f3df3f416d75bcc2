"""Our side of the same tasks: `callboard train`, counted like the peers."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from ... import environments
from ...agents.gradient_learner import GradientLearner
from ...agents.impala import Impala
from ...data import Layout, Nest, Timestep
from ...environments import BatchedEnvironment
from ...launch.settings import read_recipe
from ...networks.network import Network
from ...specs import EnvironmentSpec
from .inside.work import ACTORS, BATCH, ENVS, HIDDEN, UNROLL, Played, Trained, make

_RECIPE = "impala-cartpole"
"""Our best settings for CartPole-v1."""


@dataclasses.dataclass(frozen=True)
class CountedImpala(Impala):
    """IMPALA that counts the frames of every update."""

    def make_learner(self, networks: Network, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        learner = super().make_learner(networks, strategy, layout)
        learn, trained = learner.step, Trained()

        def learn_and_count(iterator: Any) -> Any:
            update = learn(iterator)
            trained.update(update.steps * self.unroll_length * self.batch_size)
            return update

        learner.step = learn_and_count  # type: ignore[method-assign]
        return learner


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


def cartpole(batch_size: int, seeds: Sequence[int]) -> CountedBatch:
    """Return CartPole-v1 environments as a user would get them."""
    return CountedBatch(environments.make("CartPole-v1", batch_size, seeds))


def images() -> gymnasium.Env:
    """Return the image environment that all sides use."""
    return make("images")


def command(task: str, goal: str, seed: int, directory: str) -> list[str]:
    """Return the command line that trains."""
    settings: dict[str, Any] = {
        "env": f"{__name__}:{task}",
        "actors": ACTORS,
        "envs-per-actor": ENVS,
        "evaluator": "false",
        "max-steps": 10**9,
        "seed": seed,
        "run-dir": f"{directory}/run",
    }
    if goal == "score":
        recipe = read_recipe(_RECIPE)
        agent = {f"agent.{name}": value for name, value in recipe["agent"].items() if name != "name"}
        settings |= {"max-steps": recipe["max_steps"], **agent}
    else:
        settings |= {"agent.unroll_length": UNROLL, "agent.batch_size": BATCH // UNROLL}
        settings["agent.network.normalize_observations"] = "false"
    if task == "cartpole":
        settings["agent.network.hidden_sizes"] = list(HIDDEN)
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    return [
        sys.executable,
        "-m",
        "callboard.launch.cli.command",
        "train",
        f"{__name__}:{CountedImpala.__name__}",
        *options,
    ]
