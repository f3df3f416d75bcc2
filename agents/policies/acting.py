"""Acting: one forward pass per timestep for a whole batch of environments, and a record of every timestep."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
import tree

from ... import specs
from ...data import Layout, Nest, Record, Timestep, Version, any_true, rebuilt, version_column
from ...environments import BatchedEnvironment
from ...replay import Writer
from ..agent import Agent, Policy
from ..fast_function import CompiledFunction
from ..variables.finite_checks import all_finite, check_finite, check_policy
from .output_checks import check_module, checked_policy


class Episode(NamedTuple):
    """An episode that has ended."""

    env: int
    """Index in the batch."""
    episode_return: float
    length: int
    """Environment steps."""


class EpisodeTracker:
    """Accumulates the returns and lengths of a batch of episodes, whichever way the environments reset."""

    def __init__(self, batch_size: int):
        self._returns = np.zeros(batch_size)
        self._timesteps = 0
        self._begun = np.zeros(batch_size, np.int64)
        """Number of the timestep that began each episode."""
        self._was_last: np.ndarray | None = None
        """Which timesteps before were the last of their episodes; None if there was none."""

    def observe(self, timestep: Timestep) -> list[Episode]:
        """Takes the timestep that followed an action and returns the episodes that ended with it."""
        self._timesteps += 1
        self._returns += timestep.reward
        # An episode that is reset in the same step ends without a last observation.
        ended = timestep.last | timestep.first
        if self._was_last is not None:
            # These actions were ignored.
            self._returns[self._was_last] = 0.0
            self._begun[self._was_last] = self._timesteps
            ended &= ~self._was_last
        self._was_last = timestep.last if any_true(timestep.last) else None
        if not any_true(ended):
            return []
        envs = ended.nonzero()[0]
        lengths = self._timesteps - self._begun[envs]
        episodes = map(Episode, envs.tolist(), self._returns[envs].tolist(), lengths.tolist())
        self._returns[envs] = 0.0
        self._begun[envs] = self._timesteps
        return list(episodes)


class BatchPolicy(Protocol):
    """Acts for a batch of slots."""

    def __call__(self, timestep: Timestep) -> tuple[Nest, Nest]:
        """Returns actions and extras for a timestep, as arrays `[B, ...]`."""


class CompiledPolicy:
    """A policy compiled for one batch size, which keeps its recurrent state and derives its random seeds.

    Args:
      policy: the policy.
      layout: contains the environment's spec.
      slots: int `[B]`, the slot of each environment of the batch.
      seed: the run's seed; with the first slot, the incarnation and the timestep it seeds every action.
      incarnation: number of earlier starts of the acting node.
    """

    def __init__(self, policy: Policy, layout: Layout, slots: np.ndarray, seed: int, incarnation: int = 0):
        self.policy = policy
        self._slots = tf.constant(slots, tf.int32)
        self._seed = policy_seed(seed, int(slots[0]), incarnation)
        self._timesteps = 0
        self.state = policy.initial_state(len(slots))
        self._act = CompiledFunction(
            self._call,
            timestep_spec(layout, len(slots)),
            tree.map_structure(tf.type_spec_from_value, self.state),
            tf.TensorSpec((2,), tf.int32),
        )

    def __call__(self, timestep: Timestep) -> tuple[Nest, Nest]:
        """Returns actions and extras for a timestep, as NumPy arrays `[B, ...]`, and updates the state.

        Raises:
          CallboardError: an action or an extra is not finite.
        """
        arrays = self._leaves(timestep)
        self._timesteps += 1
        # The arrays are checked before they are put together, which takes half the time.
        action, extras = rebuilt(self._act.outputs[:2], iter(arrays))
        if not all(map(all_finite, arrays)):
            check_policy(action, extras, self._slots)
        return action, extras

    @property
    def reads_variables(self) -> bool:
        """Whether the next actions depend on the variables; if not, only on what `use` has taken."""
        return True

    def use(self, values: Sequence[np.ndarray]) -> None:
        """Takes the current values of `policy.variables`; they must not be modified later."""

    def forget(self) -> None:
        """Takes notice that the variables may change: the next actions depend on them, until `use` is called again."""

    def _leaves(self, timestep: Timestep) -> list[np.ndarray]:
        """Returns the leaves of actions and extras, and updates the state."""
        seed = np.array([self._seed, self._timesteps], np.int32)
        action, extras, self.state = self._act(timestep, self.state, seed)
        return [leaf.numpy() for leaf in tree.flatten((action, extras))]

    def _call(self, timestep: Timestep, state: Nest, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        return self.policy(timestep, state, self._slots, seed)


class Stepper:
    """Steps a batch of environments and counts environment steps and ignored actions.

    Args:
      environment: the batch of environments.
    """

    def __init__(self, environment: BatchedEnvironment):
        self.environment_steps = 0
        self.ignored_timesteps = 0
        self._environment = environment
        self.begin()

    def begin(self) -> None:
        """Resets all environments; unfinished episodes are discarded."""
        self._tracker = EpisodeTracker(self._environment.batch_size)
        self.timestep = self._environment.reset()
        """The newest timestep."""
        check_finite(self.timestep)

    def step(self, action: Nest) -> list[Episode]:
        """Acts once in all environments and returns the episodes that ended."""
        ignored = self.timestep.last.tobytes().count(1)
        self.timestep = self._environment.step(action)
        check_finite(self.timestep)
        self.ignored_timesteps += ignored
        self.environment_steps += len(self.timestep.last) - ignored
        return self._tracker.observe(self.timestep)


class PolicyRecorder:
    """Acts with a policy and writes the records.

    Args:
      policy: the compiled policy.
      writer: where records go.
    """

    def __init__(self, policy: CompiledPolicy, writer: Writer):
        self._policy = policy
        self._writer = writer
        self._record: Record | None = None
        self._acted: tuple[Timestep, Nest, Nest, Nest, Version] | None = None

    def act(self, timestep: Timestep, version: Version) -> Nest:
        """Returns the actions for a timestep, with weights of that version; `record` must follow."""
        state = self._policy.state
        action, extras = self._policy(timestep)
        self._acted = timestep, state, action, extras, version
        return action

    def record(self, following: Timestep) -> None:
        """Writes the record of the timestep acted on, given the one that followed."""
        assert self._acted is not None
        timestep, state, action, extras, version = self._acted
        self._record = make_record(timestep, action, extras, version, following)
        self._writer.append(self._record, state)

    def end_sequence(self, timestep: Timestep) -> None:
        """Writes the newest timestep before it is acted on, so that it can end a sequence.

        The next `record` writes it again, with its action.
        """
        assert self._record is not None
        self._writer.append(end_record(self._record, timestep), self._policy.state)


def make_record(timestep: Timestep, action: Nest, extras: Nest, version: Version, following: Timestep) -> Record:
    """Returns the record of a timestep, made from its action, extras, weight version and the timestep that followed."""
    return Record(
        observation=timestep.observation,
        first=timestep.first,
        last=timestep.last,
        action=action,
        reward=following.reward,
        discount=following.discount,
        extras=extras,
        version=version_column(version, len(timestep.first)),
    )


def end_record(before: Record, timestep: Timestep) -> Record:
    """Returns the record of a timestep that ends a sequence and has not been acted on yet.

    Its other columns are copied from the previous record and are not used.
    """
    return before._replace(observation=timestep.observation, first=timestep.first, last=timestep.last)


def evaluate(
    environment: BatchedEnvironment,
    policy: BatchPolicy,
    episodes: int,
    stopped: Callable[[], bool],
    episode_ended: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """Plays `episodes` complete episodes, the same number in every environment.

    A fixed quota per environment avoids the bias towards short episodes that taking the first ones to finish has.

    Args:
      environment: a batch of environments; it is reset first.
      policy: the policy of all its slots.
      episodes: a multiple of the batch size.
      stopped: called before every timestep; returns True to abandon the evaluation, which then returns an empty list.
      episode_ended: called at the end of every episode that is part of the result.

    Returns:
      The episodes, ordered by environment.
    """
    quota = episodes // environment.batch_size
    done: list[list[Episode]] = [[] for _ in range(environment.batch_size)]
    tracker = EpisodeTracker(environment.batch_size)
    timestep = environment.reset()
    while any(len(of_env) < quota for of_env in done):
        if stopped():
            return []
        action, _ = policy(timestep)
        timestep = environment.step(action)
        check_finite(timestep)
        for episode in tracker.observe(timestep):
            if len(done[episode.env]) < quota:
                done[episode.env].append(episode)
                episode_ended()
    return [episode for of_env in done for episode in of_env]


def trace_layout(agent: Agent, layout: Layout, networks: Any) -> Layout:
    """Completes a layout with the specs of the policy's state and of the records that its actors write."""
    check_module(agent, "make_networks", networks)
    policy = agent.make_policy(networks, "train")
    check_module(agent, "make_policy", policy)
    state_spec = tree.map_structure(tf.type_spec_from_value, policy.initial_state(1))
    act = CompiledFunction(
        checked_policy(policy, layout.spec.action, state_spec),
        timestep_spec(layout, 1),
        state_spec,
        tf.TensorSpec((1,), tf.int32),
        tf.TensorSpec((2,), tf.int32),
    )
    if act.outputs is None:
        act(*tree.map_structure(lambda leaf: tf.zeros(leaf.shape, leaf.dtype), act.signature))
    action, extras, _ = act.outputs

    def without_batch(leaf: Any) -> tf.TensorSpec:
        return tf.TensorSpec(leaf.shape[1:], leaf.dtype)

    record = Record(
        observation=specs.tensor_spec(layout.spec.observation),
        first=tf.TensorSpec((), tf.bool),
        last=tf.TensorSpec((), tf.bool),
        action=tree.map_structure(without_batch, action),
        reward=tf.TensorSpec((), tf.float32),
        discount=tf.TensorSpec((), tf.float32),
        extras=tree.map_structure(without_batch, extras),
        version=tf.TensorSpec((2,), tf.int32),
    )
    return layout._replace(record=record, state=tree.map_structure(without_batch, state_spec))


def policy_seed(run_seed: int, first_slot: int, incarnation: int = 0, restart: int = 0) -> int:
    """Returns the seed of a batch's actions, which is combined with the number of the timestep.

    Args:
      run_seed: the run's seed, 0 or more.
      first_slot: the first slot of the batch.
      incarnation: number of earlier starts of the node that steps the environments.
      restart: how often the numbering of timesteps has restarted at 0 in this incarnation.
    """
    return int(np.random.SeedSequence([run_seed, first_slot, incarnation, restart]).generate_state(1)[0] >> 1)


def timestep_spec(layout: Layout, batch_size: int | None) -> Timestep:
    """Returns the `tf.TensorSpec`s of a timestep of `batch_size` environments; None stands for any number."""
    flag, number = tf.TensorSpec((batch_size,), tf.bool), tf.TensorSpec((batch_size,), tf.float32)
    return Timestep(
        observation=specs.tensor_spec(layout.spec.observation, (batch_size,)),
        reward=number,
        discount=number,
        first=flag,
        last=flag,
    )
