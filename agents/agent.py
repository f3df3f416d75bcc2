"""The recipe: what an agent must say so that it can be trained on any launcher."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import tensorflow as tf

from ..data import EnvironmentOutput, Layout, Nest, Record, Update
from ..replay import ReplayDataset, ReplayHandle

Mode = Literal["train", "evaluate"]


class Policy(Protocol):
    """Chooses actions for a batch of environments.  A `tf.Module`: its variables are what actors fetch."""

    @property
    def variables(self) -> Sequence[tf.Variable]: ...

    def initial_state(self, batch_size: int) -> Nest:
        """The recurrent state at the beginning, leaves `[B, ...]`; `()` without one."""

    def __call__(
        self, tick: EnvironmentOutput, state: Nest, slot: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Nest, Nest, Nest]:
        """Acts on one tick.

        Compiled without AutoGraph: what depends on the value of a tensor needs `tf.where` or `tf.cond`.

        Args:
          tick: what the environments showed, leaves `[B, ...]`.
          state: the recurrent state that belongs to the tick's observations, `[B, ...]`.
          slot: int32 `[B]`, the global index of each environment.
          seed: int32 `[2]`, different at every tick and in every actor: the only source of randomness.  In central
            inference `[K, 2]` for the batches of K actors, one after the other; `networks.noise` and the distributions
            take both, and draw the same for an actor whether its batch comes alone or among others.

        Returns:
          action `[B, ...]` in the environment's dtype, extras `[B, ...]` for the record, and the next state `[B, ...]`.
        """


class Writer(Protocol):
    """Takes an actor's records to replay."""

    def append(self, record: Record, state: Nest) -> None:
        """Adds one tick, and the recurrent state that it began with.  Never blocks."""

    @property
    def items_written(self) -> int:
        """Items created so far."""

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds until replay has caught up; False if it has not.

        `max_pending` is the number of items that may still wait for replay; None leaves it to the writer.
        """

    def close(self) -> None: ...


class Learner(Protocol):
    """Improves the networks.  A `tf.Module`: all of its variables are in the checkpoint."""

    def step(self, iterator: Iterator[Any]) -> Update:
        """Takes what it needs from `iterator`, and makes one step, or as many as it says in the `Update`."""


class Pace(NamedTuple):
    """How far actors may run ahead of the learner, for agents that learn from each sequence once and while it is new.

    An actor then writes sequence after sequence, each with the observation that ends it, and begins one only if it can
    be learnt from within `max_policy_lag` learner steps after the step that gave the weights to act with.
    """

    max_policy_lag: int
    """Learner steps; with 0 actors and learner take turns."""
    unroll_length: int
    """Transitions in a sequence (T).  Writers must start a new sequence every T + 1 ticks."""
    items_per_actor: int
    """Items that each actor gives to one learner step."""


class Agent(abc.ABC):
    """A recipe.  Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Every node of a run builds its part from the same recipe: actors call `make_networks`, `make_policy` and
    `make_writer`; the replay server `make_tables`; the learner `make_networks`, `make_dataset` and `make_learner`.
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
        """The policy that acts with `networks`: with exploration to train, without to evaluate."""

    @abc.abstractmethod
    def make_tables(self, layout: Layout) -> list[Any]:
        """The `reverb.Table`s of one replay shard."""

    @abc.abstractmethod
    def make_writer(self, replay: ReplayHandle, layout: Layout, actor: int) -> Writer:
        """The writer of the actor with index `actor`."""

    @abc.abstractmethod
    def make_dataset(
        self, replay: ReplayHandle, layout: Layout, input_context: tf.distribute.InputContext
    ) -> ReplayDataset:
        """The batches of one replica."""

    def pace(self, layout: Layout) -> Pace | None:
        """How far actors may run ahead of the learner; None does not hold them back."""
        return None

    @abc.abstractmethod
    def make_learner(self, networks: Any, strategy: tf.distribute.Strategy, layout: Layout) -> Learner:
        """The learner of `networks`; called in the strategy's scope."""
