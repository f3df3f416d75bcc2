"""A policy as a function of observations, without an environment."""

import itertools
import numbers
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tree

from ... import specs
from ...action_masks import check_legal
from ...agents.agent import Policy
from ...agents.fast_function import CompiledFunction, as_arrays
from ...agents.policies.acting import policy_seed
from ...agents.variables.finite_checks import all_finite
from ...data import Nest, Timestep, rebuilt
from ...environments.batches.encoding import decode, encoding_of, split
from ...environments.batches.given_observations import read_numbers, read_observations
from ...errors import CallboardError, UnknownAttribute, anything_raised, check_type, message_of, type_text
from ...settings.setting_arguments import checked_names
from ...specs import EnvironmentSpec
from ..processes.forked_process import check_tensorflow_works
from .traced_policy import state_spec


@checked_names
class ActingPolicy:
    """A policy that acts on observations as the environment gives them, with actions as the environment takes them.

    `policy(observation)` takes one observation, as from `env.reset()`, and gives one action, for `env.step(action)`; or
    a batch of observations `[B, ...]`, and gives a batch of actions.  The shape decides which of them.  Images whose
    channels come first stay so, a `Discrete(3, start=1)` action is 1, 2 or 3, and numbers have the dtype of the
    environment's space.  (Atari, MinAtar and Procgen games are environments of ours: their observations are those of
    `docs/environments.md`.)

    A policy with memory is called with the state that it returned before.  The object itself remembers nothing but how
    often it was called, which is part of the seed of sampled actions; several threads may call it.

    Args:
      policy: the policy, in the mode in which it is to act.
      spec: spec of the environment.
      seed: seed of sampled actions, at least 0.
      environment: the spec of all that the environment gives, whose other parts of observations, such as that of
        `critic_state`, may be given and are left out; None if it is `spec`.

    Raises:
      CallboardError: the policy supports only batches of a static size.
    """

    def __init__(
        self, policy: Policy, spec: EnvironmentSpec, seed: int = 0, environment: EnvironmentSpec | None = None
    ):
        check_type("spec", spec, EnvironmentSpec, "an EnvironmentSpec")
        check_type("seed", seed, numbers.Integral, "a whole number")
        if not callable(policy) or not hasattr(policy, "initial_state"):
            raise CallboardError(f"policy must be what Agent.make_policy gives, not {type_text(policy)}")
        self.spec = spec
        """The environment's spec, as agents see it."""
        self._spec = spec
        self._encoding = encoding_of(spec)
        whole = spec if environment is None else environment
        self._unseen = set(whole.observation) - set(spec.observation) if isinstance(spec.observation, dict) else set()
        self._policy = policy
        self._state_spec = state_spec(policy)
        self._state_leaves = [(leaf.shape[1:], leaf.dtype.as_numpy_dtype) for leaf in tree.flatten(self._state_spec)]
        self._initial: dict[int, Nest] = {}
        self._calls = itertools.count()
        self._seed = policy_seed(seed, 0)
        self._lock = threading.Lock()
        number, flag = tf.TensorSpec((None,), tf.float32), tf.TensorSpec((None,), tf.bool)
        timestep = Timestep(specs.tensor_spec(spec.observation, (None,)), number, number, flag, flag)
        try:
            self._act = CompiledFunction(
                self._action_and_state,
                timestep,
                self._state_spec,
                tf.TensorSpec((None,), tf.int32),
                tf.TensorSpec((2,), tf.int32),
            )
        except anything_raised() as error:  # The policy's operations may raise anything.
            reason = (message_of(error).strip().splitlines() or [""])[-1].strip()
            raise CallboardError(
                f"the policy cannot act on batches of any size ({type(error).__name__}: {reason}): see agents/agent.py"
            ) from error
        self.uses_reward = self._act.uses is not None and self._act.uses[0].reward
        """Whether calls with a state need the reward of the action before."""

    if not TYPE_CHECKING:  # Type checkers find names that do not exist themselves.

        def __getattr__(self, name: str) -> Any:
            raise UnknownAttribute(f"{type(self).__name__!r} object", name, dir(type(self)))

    def __call__(self, observation: Any, state: Nest = None, reward: Any = None, first: Any = None) -> tuple[Any, Nest]:
        """Acts on one observation or on a batch of B of them.

        Args:
          observation: as the environment gives it, or a nest of arrays `[B, ...]`.
          state: the state that the previous call returned; None at the start of an episode.
          reward: the reward of the action before, a number or `[B]`.  Only with a state, and only needed by policies
            that have `uses_reward` (R2D2's).
          first: whether the observation begins an episode, a bool or `[B]`; the policy resets its state there.  By
            default none does, or all if there is no state.

        Returns:
          The action, or a nest of actions `[B, ...]`, as the environment takes it; and the state for the next call:
          `()` for a policy without memory, else a nest of arrays, `[B, ...]` for a batch.

        Raises:
          CallboardError: an argument has the wrong shape or dtype, is not finite, or allows no action; or this process
            was forked after TensorFlow was used.
        """
        check_tensorflow_works()
        if self._unseen and isinstance(observation, Mapping):
            observation = {name: part for name, part in observation.items() if name not in self._unseen}
        batch, size = read_observations(self._encoding.observation, observation)
        if not all(map(all_finite, tree.flatten(batch))):
            raise CallboardError("the observation is NaN or infinite: the policy can act on finite numbers only")
        check_legal(self._spec, batch)
        count = size or 1
        given = self._initial_state(count) if state is None else self._read_state(state, size)
        timestep = Timestep(
            observation=batch,
            reward=self._read_reward(reward, state, size),
            discount=np.ones(count, np.float32),
            first=np.ones(count, np.bool_) if state is None else _column("first", first, size, np.bool_),
            last=np.zeros(count, np.bool_),
        )
        seed = np.array([self._seed, next(self._calls) % 2**31], np.int32)
        action, after = as_arrays(self._act(timestep, given, np.arange(count, dtype=np.int32), seed))
        if size is None:
            return split(self._encoding.action, action, 1)[0], tree.map_structure(lambda leaf: leaf[0], after)
        return decode(self._encoding.action, action, size), after

    def initial_state(self, batch_size: int | None = None) -> Nest:
        """Returns the state at the start of an episode, for one observation or for a batch; it equals a state of None.

        Arrays `[...]` or `[B, ...]`, or `()` for a policy without memory.
        """
        check_tensorflow_works()
        state = tree.map_structure(np.copy, self._initial_state(batch_size or 1))
        return tree.map_structure(lambda leaf: leaf[0], state) if batch_size is None else state

    def _action_and_state(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest]:
        action, _, after = self._policy(timestep, state, slot, seed)
        return action, after

    def _initial_state(self, count: int) -> Nest:
        if not self._state_leaves:
            return self._state_spec
        state = self._initial.get(count)
        if state is None:
            state = as_arrays(self._policy.initial_state(count))
            with self._lock:
                # Batches of every size would otherwise keep their states for ever.
                if len(self._initial) >= _KEPT_STATES:
                    self._initial.clear()
                self._initial[count] = state
        return state

    def _read_state(self, state: Nest, size: int | None) -> Nest:
        try:
            leaves = _leaves_as_in(self._state_spec, state)
            pairs = list(zip(leaves, self._state_leaves, strict=True))
        except (ValueError, TypeError, KeyError) as error:
            raise CallboardError("the state has another structure than the states that this policy returns") from error
        arrays = [read_numbers(leaf, "the state").astype(dtype) for leaf, (_, dtype) in pairs]
        for array, (shape, _) in zip(arrays, self._state_leaves, strict=True):
            expected = tuple(shape) if size is None else (size, *shape)
            if array.shape != expected:
                raise CallboardError(
                    f"the state has an array of shape {array.shape} where {expected} belongs to "
                    + ("one observation" if size is None else f"a batch of {size} observations")
                )
        if size is None:
            arrays = [array[np.newaxis] for array in arrays]
        return rebuilt(self._state_spec, iter(arrays))

    def _read_reward(self, reward: Any, state: Nest, size: int | None) -> np.ndarray:
        if state is None:
            return np.zeros(size or 1, np.float32)
        if reward is None and self.uses_reward:
            raise CallboardError("this policy uses rewards: pass the reward of the action before, as reward=...")
        return _column("reward", reward, size, np.float32)


_KEPT_STATES = 64


def _column(name: str, given: Any, size: int | None, dtype: Any) -> np.ndarray:
    """Returns an argument that is one number, or one for each observation of a batch, as an array `[B]`."""
    array = read_numbers(0 if given is None else given, name).astype(dtype)
    count = size or 1
    if array.shape not in ((), (size,)) or not all_finite(array):
        expected = "one finite number" if size is None else f"one finite number, or {size}"
        raise CallboardError(f"{name} must be {expected}, not {given!r}")
    return np.array(np.broadcast_to(array, (count,)))


def _leaves_as_in(structure: Nest, value: Any) -> list[Any]:
    """Flattens a nest as `tree.flatten` flattens `structure`; tuples may have become lists on their way."""
    if isinstance(structure, Mapping):
        if not isinstance(value, Mapping) or set(value) != set(structure):
            raise TypeError
        return [leaf for key in sorted(structure) for leaf in _leaves_as_in(structure[key], value[key])]
    if isinstance(structure, tuple | list):
        if not isinstance(value, Sequence | np.ndarray) or len(value) != len(structure):
            raise TypeError
        return [leaf for pair in zip(structure, value, strict=True) for leaf in _leaves_as_in(*pair)]
    return [value]
