"""The agent protocol: what an agent implements so that any launcher can train it."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import tree

from ..data import Layout, Nest, Timestep, Update
from ..errors import CallboardError, unknown
from ..settings.nested_settings import declared_fields
from ..settings.replay_settings import ReplaySettings
from ..settings.setting_arguments import check_argument_names, convert_arguments
from ..settings.setting_types import NAME, check_ranges, field_types, shown
from ..settings.settings_classes import check_only_fields
from .watched import Watch

if TYPE_CHECKING:
    # Settings are parsed and validated before TensorFlow is imported.
    import tensorflow as tf

    from ..replay import Replay, ReplayHandle, Writer
    from ..specs import EnvironmentSpec

Mode = Literal["train", "evaluate", "sample"]
"""How a policy acts: `train` explores, `evaluate` takes the best action, and `sample` samples actions as in training
but without additional exploration."""


class Policy(Protocol):
    """Chooses actions for a batch of environments.  A `tf.Module` whose variables are the weights that actors fetch."""

    @property
    def variables(self) -> Sequence[tf.Variable]: ...

    def initial_state(self, batch_size: int) -> Nest:
        """Returns the initial recurrent state, leaves `[B, ...]`; `()` for a policy without one."""

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        """Acts on one timestep.

        Compiled without AutoGraph: control flow that depends on tensor values needs `tf.where` or `tf.cond`.

        Args:
          timestep: the environments' timestep, leaves `[B, ...]`.
          state: the recurrent state before the timestep's observations, `[B, ...]`.
          slot: int32 `[B]`, the slot of each environment.
          seed: int32 `[2]`, different at every timestep and in every actor; the only source of randomness.  In central
            inference it is `[K, 2]` for the concatenated batches of K actors.  `networks.stateless_random` and the
            distributions accept both, and an actor gets the same samples whether its batch is alone or among others.

        Returns:
          The action `[B, ...]` in the environment's dtype, extras `[B, ...]` for the record, and the next state
          `[B, ...]`.
        """


class Learner(Protocol):
    """Trains the networks.  A `tf.Module` whose variables are all saved in the checkpoint."""

    def step(self, iterator: Iterator[Any]) -> Update:
        """Takes the batches that it needs from `iterator` and makes one learner step, or several: see `Update`."""


class Agent(abc.ABC):
    """An agent.  Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Every node of a run builds its part from the same agent.  Actors use `make_networks`, `make_policy` and the writer
    of `make_replay`; replay servers use its tables; learners use its dataset, `make_networks` and `make_learner`.

    Values may be plain, as in YAML: `Ppo(optimizer={"learning_rate": 1e-3})` changes one setting of the optimizer.

    Raises:
      CallboardError: there is no hyperparameter of that name, its value does not fit its annotation (see
        `setting_types`), or the class is not written as `check_agent_class` says.
    """

    live: ClassVar[tuple[str, ...]] = ()
    """Names of float hyperparameters that may change while the agent learns, such as `optimizer.learning_rate`.  The
    agent that makes the learner has a `tf.Variable` in their place, see `live_settings`."""

    watched: ClassVar[tuple[Watch, ...]] = ()
    """Rules by which a run warns, while the agent learns, that a setting does not fit."""

    default_envs_per_actor: ClassVar[int] = 16
    """Environments that an actor steps as a batch where `envs_per_actor` is not set."""

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, **named: Any) -> Agent:
            # Before the constructor of the dataclass, which knows no similar names.
            check_argument_names(cls, named)
            made = super().__new__(cls)
            check_agent_class(cls)
            return made

    def __post_init__(self) -> None:
        convert_arguments(self, "agent")
        check_ranges(self, "agent.")

    @abc.abstractmethod
    def check(self, layout: Layout) -> None:
        """Checks that the agent can train with this layout and these hyperparameters.

        Runs before anything starts, so `layout.record` and `layout.state` are not set yet.  It must not run TensorFlow
        operations.

        Raises:
          CallboardError: the agent does not support the environment, or a hyperparameter is invalid.
        """

    def advice(self, layout: Layout) -> list[str]:
        """Returns lines about settings that work, but that are hardly meant; they are shown when a run begins."""
        sees_one = getattr(self, "frame_stack", None) == 1
        has_memory = getattr(getattr(self, "network", None), "core", "none") != "none"
        if sees_one and not has_memory and any(map(_is_gray, tree.flatten(layout.spec.observation))):
            return [
                "the network sees one gray image at a time, in which nothing moves: --agent.frame-stack 4 shows it the "
                "last four, as is usual for Atari"
            ]
        return []

    @abc.abstractmethod
    def make_networks(self, layout: Layout) -> tf.Module:
        """Creates all networks, with all variables built.  The learner calls it in its strategy's scope."""

    @abc.abstractmethod
    def make_policy(self, networks: Any, mode: Mode) -> Policy:
        """Creates the policy that acts with `networks`, in one of `modes`."""

    def acting_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec of what a policy acts on outside of training: `spec`, or less if a critic sees more."""
        return spec

    def modes(self) -> tuple[Mode, ...]:
        """Returns the modes that `make_policy` accepts; `sample` is for agents that learn a distribution of actions."""
        return ("train", "evaluate")

    def steps_at_a_time(self) -> int:
        """Returns the learner steps of one call of the learner, the field `updates_per_call`.

        A limit of learner steps is a multiple of it.  1 if calls fit themselves to the limit.
        """
        return getattr(self, "updates_per_call", None) or 1

    def check_steps(self, setting: str, steps: int | None) -> None:
        """Rejects a number of learner steps, the value of a setting, after which no call of the learner ends."""
        at_a_time = self.steps_at_a_time()
        if steps is not None and steps % at_a_time:
            fitting = [str(number * at_a_time) for number in (steps // at_a_time, steps // at_a_time + 1) if number]
            raise CallboardError(
                f"{setting} ({steps}) must be a multiple of agent.updates_per_call ({at_a_time}), the learner steps "
                f"made at a time: set it to {' or '.join(fitting)}"
            )

    def reward_discount(self) -> float | None:
        """Returns the discount of future rewards, the field `discount`; None if the agent learns from no rewards."""
        return getattr(self, "discount", None)

    def recorded_replay(self) -> ReplaySettings | None:
        """Returns the settings of the replay that recorded episodes can fill, the field `replay`.

        None if the agent learns from its own newest episodes alone.
        """
        replay = getattr(self, "replay", None)
        return replay if isinstance(replay, ReplaySettings) else None

    def relabels_goals(self) -> bool:
        """Returns whether writers need the environment's rewards for other goals, see `HindsightSettings`."""
        replay = self.recorded_replay()
        return replay is not None and replay.hindsight.goals > 0

    def evaluation_rate(self) -> float | None:
        """Returns the rate of random actions in evaluations, the field `evaluation_epsilon`; None if it has none."""
        return getattr(self, "evaluation_epsilon", None)

    def setting_of_actors(self) -> str:
        """Returns the name of a setting that has no meaning where nothing is played; empty if there is none."""
        return "bonus" if getattr(getattr(self, "bonus", None), "name", "none") != "none" else ""

    def recorded_items(self, timesteps: int, episodes: int) -> int:
        """Returns the number of items in replay that recorded episodes become.

        An item begins at each of `timesteps`, or at one in every `period` where the agent has a field of that name:
        sequences also begin at the last timesteps of `episodes`.
        """
        period = getattr(self, "period", None)
        return timesteps if period is None else (timesteps + episodes) // period

    def for_agents(self, count: int) -> Agent:
        """Returns the agent for environments in each of which it controls `count` agents.

        Agents whose batches hold a number of sequences of every environment count them by environment.
        """
        return self

    @abc.abstractmethod
    def make_replay(self, layout: Layout) -> Replay:
        """Creates the replay kind: `SequenceQueue`, `TransitionReplay`, `SequenceReplay`, or a custom one."""

    def make_writer(self, replay: ReplayHandle, layout: Layout, actor: int, networks: Any) -> Writer:
        """Creates what the records of an actor are written with: the replay kind's writer.

        An agent overrides it to store something that its networks compute from records, such as gradients.

        Args:
          replay: handle of the replay to write to.
          layout: the run's layout, with record and state.
          actor: index of the actor.
          networks: the networks of the node that acts, with the weights that it has fetched.
        """
        return self.make_replay(layout).writer(replay, actor)

    @abc.abstractmethod
    def make_learner(self, networks: Any, strategy: tf.distribute.Strategy, layout: Layout) -> Learner:
        """Creates the learner that trains `networks`; called in the strategy's scope."""


@functools.cache
def check_agent_class(kind: type[Agent]) -> None:
    """Rejects a class of agents whose hyperparameters cannot be those of a run.

    Raises:
      CallboardError: it is no dataclass, one of its fields has a name or a kind that a run's settings cannot hold, or
        `live` names none of them.
    """
    if not dataclasses.is_dataclass(kind):
        raise CallboardError(
            f"the agent {kind.__name__} must be a frozen dataclass: write @dataclasses.dataclass(frozen=True) above it"
        )
    check_only_fields(kind)
    if NAME in field_types(kind):
        raise CallboardError(
            f"the agent {kind.__name__} has the setting {NAME!r}, which in a run's settings is the name of the agent: "
            "rename it"
        )
    if not isinstance(kind.live, tuple):
        raise CallboardError(f"{kind.__name__}.live must be a tuple, such as ('clip',), not {shown(kind.live)}")
    known = declared_fields(kind)
    for name in kind.live:
        if name not in known:
            raise unknown(f"setting in {kind.__name__}.live", name, known, "it must be one of the agent's own")


def _is_gray(leaf: Any) -> bool:
    """Returns whether an observation is an image of one channel, such as of Atari."""
    return leaf.dtype == np.uint8 and len(leaf.shape) == 3 and leaf.shape[-1] == 1 and min(leaf.shape[:2]) > 1
