"""The agent protocol: what an agent provides so that any launcher can train it."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..data import Layout, Nest, Timestep, Update

if TYPE_CHECKING:
    # Settings are read and refused before TensorFlow is imported.
    import tensorflow as tf

    from ..replay import Replay

Mode = Literal["train", "evaluate", "sample"]
"""How a policy acts: with exploration, by its best actions, or by actions sampled as in training but without what else
explores."""


class Policy(Protocol):
    """Chooses actions for a batch of environments.  A `tf.Module`: its variables are what actors fetch."""

    @property
    def variables(self) -> Sequence[tf.Variable]: ...

    def initial_state(self, batch_size: int) -> Nest:
        """The recurrent state at the beginning, leaves `[B, ...]`; `()` without one."""

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        """Acts on one timestep.

        Compiled without AutoGraph: what depends on the value of a tensor needs `tf.where` or `tf.cond`.

        Args:
          timestep: what the environments showed, leaves `[B, ...]`.
          state: the recurrent state that belongs to the timestep's observations, `[B, ...]`.
          slot: int32 `[B]`, the global index of each environment.
          seed: int32 `[2]`, different at every timestep and in every actor: the only source of randomness.  In central
            inference `[K, 2]` for the batches of K actors, one after the other; `networks.noise` and the distributions
            take both, and draw the same for an actor whether its batch comes alone or among others.

        Returns:
          action `[B, ...]` in the environment's dtype, extras `[B, ...]` for the record, and the next state `[B, ...]`.
        """


class Learner(Protocol):
    """Improves the networks.  A `tf.Module`: all of its variables are in the checkpoint."""

    def step(self, iterator: Iterator[Any]) -> Update:
        """Takes what it needs from `iterator`, and makes one step, or as many as it says in the `Update`."""


class Agent(abc.ABC):
    """An agent.  Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Every node of a run builds its part from the same agent: actors from `make_networks`, `make_policy` and the writers
    of `make_replay`, replay servers from its tables, and learners from its dataset, `make_networks` and `make_learner`.
    """

    @abc.abstractmethod
    def check(self, layout: Layout) -> None:
        """Raises `CallboardError` for what this agent cannot do.

        Runs before anything starts: `layout.record` and `layout.state` are not known yet.  No TensorFlow operations.
        """

    @abc.abstractmethod
    def make_networks(self, layout: Layout) -> tf.Module:
        """All networks, with all variables built.  The learner calls it in its strategy's scope."""

    @abc.abstractmethod
    def make_policy(self, networks: Any, mode: Mode) -> Policy:
        """The policy that acts with `networks`, in one of `modes`."""

    def modes(self) -> tuple[Mode, ...]:
        """The modes that `make_policy` takes; `sample` is for agents that learn a distribution over actions."""
        return ("train", "evaluate")

    @abc.abstractmethod
    def make_replay(self, layout: Layout) -> Replay:
        """The replay kind: `SequenceQueue`, `TransitionReplay`, `SequenceReplay`, or one of your own."""

    @abc.abstractmethod
    def make_learner(self, networks: Any, strategy: tf.distribute.Strategy, layout: Layout) -> Learner:
        """The learner of `networks`; called in the strategy's scope."""
