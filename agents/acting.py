"""Acting: one forward pass for a whole batch of environments, and a record of every timestep."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from .. import specs
from ..data import Layout, Nest, Record, Timestep, Version, version_column
from ..environments import BatchedEnvironment
from ..replay import Writer
from .agent import Agent, Policy
from .fast_function import CompiledFunction, as_arrays
from .finite_checks import check_finite, check_policy


class Episode(NamedTuple):
    """An episode that has ended."""

    env: int
    """Index in the batch."""
    episode_return: float
    length: int
    """Environment steps."""


class EpisodeTracker:
    """Adds up returns and lengths of a batch of episodes, timestep by timestep, for every kind of reset."""

    def __init__(self, batch_size: int):
        self._returns = np.zeros(batch_size)
        self._lengths = np.zeros(batch_size, np.int64)
        self._was_last = np.zeros(batch_size, bool)

    def observe(self, timestep: Timestep) -> list[Episode]:
        """Takes the timestep after an action and gives the episodes that it ended."""
        acted = ~self._was_last
        self._returns += timestep.reward * acted
        self._lengths += acted
        # An episode that was reset in the same step is over without ever having shown a last observation.
        ended = timestep.last | (timestep.first & acted)
        self._was_last = np.asarray(timestep.last)
        if not ended.any():
            return []
        envs = np.flatnonzero(ended)
        episodes = map(Episode, envs.tolist(), self._returns[envs].tolist(), self._lengths[envs].tolist())
        self._returns[envs] = 0.0
        self._lengths[envs] = 0
        return list(episodes)


class CompiledPolicy:
    """A policy as one `tf.function` over batches of one size, with its state and random seeds kept for it.

    Args:
      policy: the policy.
      layout: names the environment's spec.
      slots: int `[B]`, the global index of each environment of the batch.
      seed: of the run; together with the first slot, the incarnation and the timestep it seeds every action.
      incarnation: number of earlier starts of the node that acts.
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
        """Actions and extras for a timestep, as NumPy arrays `[B, ...]`; the state moves on.

        Raises:
          CallboardError: they are not finite.
        """
        seed = np.array([self._seed, self._timesteps], np.int32)
        self._timesteps += 1
        action, extras, self.state = self._act(timestep, self.state, seed)
        action, extras = as_arrays(action), as_arrays(extras)
        check_policy(action, extras, self._slots)
        return action, extras

    def _call(self, timestep: Timestep, state: Nest, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        return self.policy(timestep, state, self._slots, seed)


class Stepper:
    """Steps a batch of environments, and counts.

    Args:
      environment: the batch of environments.
    """

    def __init__(self, environment: BatchedEnvironment):
        self.environment_steps = 0
        self.ignored_timesteps = 0
        self._environment = environment
        self.begin()

    def begin(self) -> None:
        """Begins new episodes; those that were going on are given up."""
        self._tracker = EpisodeTracker(self._environment.batch_size)
        self.timestep = self._environment.reset()
        """The newest."""
        check_finite(self.timestep)

    def step(self, action: Nest) -> list[Episode]:
        """Acts once in all environments; gives the episodes that ended."""
        ignored = int(np.count_nonzero(self.timestep.last))
        self.timestep = self._environment.step(action)
        check_finite(self.timestep)
        self.ignored_timesteps += ignored
        self.environment_steps += len(self.timestep.last) - ignored
        return self._tracker.observe(self.timestep)


class Actor:
    """Steps a batch of environments with a policy and writes the records.

    Args:
      environment: the batch of environments.
      policy: the compiled policy for it.
      writer: where records go.
    """

    def __init__(self, environment: BatchedEnvironment, policy: CompiledPolicy, writer: Writer):
        self.writer = writer
        self.version = Version(0, 0)
        self.stepper = Stepper(environment)
        self._policy = policy
        self._record: Record | None = None

    @property
    def environment_steps(self) -> int:
        """Actions that were executed."""
        return self.stepper.environment_steps

    @property
    def ignored_timesteps(self) -> int:
        """Actions that only led from the end of an episode to the beginning of the next."""
        return self.stepper.ignored_timesteps

    def step(self) -> list[Episode]:
        """Acts once in all environments; gives the episodes that ended."""
        timestep, state = self.stepper.timestep, self._policy.state
        action, extras = self._policy(timestep)
        episodes = self.stepper.step(action)
        self._record = make_record(timestep, action, extras, self.version, self.stepper.timestep)
        self.writer.append(self._record, state)
        return episodes

    def end_sequence(self) -> None:
        """Writes the present observation before it is acted on, so that it can end a sequence.

        It will be written once more, with its action.
        """
        assert self._record is not None
        self.writer.append(end_record(self._record, self.stepper.timestep), self._policy.state)


def make_record(timestep: Timestep, action: Nest, extras: Nest, version: Version, following: Timestep) -> Record:
    """The record of a timestep that was acted on with weights of that version, once the timestep that followed is
    known.
    """
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
    """The record of a timestep that ends a sequence and was not acted on yet.

    What else stands in it is of the record before, and means nothing.
    """
    return before._replace(observation=timestep.observation, first=timestep.first, last=timestep.last)


def evaluate(
    environment: BatchedEnvironment,
    policy: CompiledPolicy,
    episodes: int,
    stopped: Callable[[], bool],
    episode_ended: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """Plays `episodes` whole episodes, the same number in every environment.

    With a fixed quota to each environment, and not the first episodes to finish, short ones are not favored.

    Args:
      environment: a batch of environments, freshly made or between two evaluations.
      policy: the compiled policy for it.
      episodes: a multiple of the batch size.
      stopped: called before every timestep; True to give up, and the result is then empty.
      episode_ended: called at the end of every episode that is part of the result.
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
    """Completes a layout with the spec of the records that the agent's policy makes."""
    policy = agent.make_policy(networks, "train")
    state_spec = tree.map_structure(tf.type_spec_from_value, policy.initial_state(1))
    act = CompiledFunction(
        policy, timestep_spec(layout, 1), state_spec, tf.TensorSpec((1,), tf.int32), tf.TensorSpec((2,), tf.int32)
    )
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
    """What seeds, together with the timestep, the actions of the batch of environments that begins with that slot.

    Args:
      run_seed: 0 or more.
      first_slot: of the batch.
      incarnation: number of earlier starts of the node that steps the environments.
      restart: number of times that timesteps have begun at 0 again in this incarnation.
    """
    return int(np.random.SeedSequence([run_seed, first_slot, incarnation, restart]).generate_state(1)[0] >> 1)


def timestep_spec(layout: Layout, batch_size: int | None) -> Timestep:
    """`tf.TensorSpec` of a timestep of `batch_size` environments; None for any number."""
    flag, number = tf.TensorSpec((batch_size,), tf.bool), tf.TensorSpec((batch_size,), tf.float32)
    return Timestep(
        observation=specs.tensor_spec(layout.spec.observation, (batch_size,)),
        reward=number,
        discount=number,
        first=flag,
        last=flag,
    )
