"""Rewards that transitions of an environment with goals would give for other goals, as Gymnasium's `GoalEnv` has them.

Such an environment has observations with the parts `achieved_goal` and `desired_goal`, a method
`compute_reward(achieved_goal, desired_goal, info)`, and perhaps `compute_terminated` with the same arguments.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import vector as vector_wrappers

from ...errors import CallboardError, anything_raised, one_line
from ...specs import ACHIEVED, DESIRED
from .batched import BatchedEnvironment
from .encoding import Leaf, decode, encoding_of

REWARD, TERMINATED = "compute_reward", "compute_terminated"

Method = Callable[[Any, Any, Any], Any]
_CHANGING = (gymnasium.RewardWrapper, gymnasium.wrappers.NormalizeReward, gymnasium.wrappers.RepeatAction)
_CHANGING_VECTORS = (gymnasium.vector.VectorRewardWrapper, vector_wrappers.NormalizeReward)
"""Wrappers with which rewards are no longer those of `compute_reward`."""


class GoalRewards:
    """The methods of a batch's environments that compute what transitions give.

    A method may take single goals, or batches of them, with an info each; that of the first environment is tried with
    both, and is called once for many only if the results agree.

    Args:
      environment: the batch; where it keeps no infos, as for recorded episodes, they are empty.
      rewards: `compute_reward` of each environment.
      terminated: `compute_terminated` of each; None if they have none.
      owners: the environments or wrappers that have `compute_reward`.
    """

    def __init__(
        self,
        environment: BatchedEnvironment,
        rewards: Sequence[Method],
        terminated: Sequence[Method] | None = None,
        owners: Sequence[Any] = (),
    ):
        self._environment = environment
        self._owners = owners
        self._rewards = _Vectorized(REWARD, rewards)
        self._terminated = None if terminated is None else _Vectorized(TERMINATED, terminated)
        parts = encoding_of(environment.spec).observation
        self._goals = parts[ACHIEVED], parts[DESIRED]

    def infos(self) -> list[dict[str, Any]]:
        """Returns copies of the infos that followed the newest actions, by environment."""
        infos = self._environment.infos
        return [{} if infos is None else _kept(infos.followed[env]) for env in range(self._environment.batch_size)]

    @contextlib.contextmanager
    def counted_steps(self) -> Iterator[list[int]]:
        """Yields a list whose only element counts the steps of what has `compute_reward` in the first environment.

        A wrapper around it may make several of one action.
        """
        owner, count = self._owners[0], [0]
        step = owner.step

        def counted(action: Any) -> Any:
            count[0] += 1
            return step(action)

        owner.step = counted
        try:
            yield count
        finally:
            owner.step = step

    def rewards(self, env: int, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]) -> np.ndarray:
        """Returns the rewards of M transitions by `compute_reward` of an environment.

        Args:
          env: index of the environment.
          achieved: `[M, ...]`, the goals achieved after them, as the agent sees them.
          desired: `[M, ...]`, the goals to achieve.
          infos: the infos that came with them.

        Returns:
          float32 `[M]`.

        Raises:
          CallboardError: the method fails, or gives something else than finite numbers.
        """
        own, wanted = self._native(achieved, desired)
        given = self._rewards(env, own, wanted, infos)
        if given.dtype.kind not in "fiub" or not np.isfinite(given).all():
            raise CallboardError(f"{REWARD} must give a finite number, not {given.tolist()[:3]}")
        return given.astype(np.float32)

    def terminated(
        self, env: int, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]
    ) -> np.ndarray | None:
        """Returns what `compute_terminated` says, bool `[M]`; None if there is none.  Otherwise like `rewards`."""
        if self._terminated is None:
            return None
        own, wanted = self._native(achieved, desired)
        return self._terminated(env, own, wanted, infos).astype(np.bool_)

    def _native(self, *goals: np.ndarray) -> list[np.ndarray]:
        """Returns goals `[M, ...]` as the environment has them."""
        native = []
        for part, goal in zip(self._goals, goals, strict=True):
            array = decode(part, goal, len(goal))
            native.append(np.moveaxis(array, -1, 1) if part.channels_first else array)
        return native


class _Vectorized:
    """A method of each environment, called for many transitions at a time where it takes them."""

    def __init__(self, name: str, methods: Sequence[Method]):
        self._name = name
        self._methods = methods
        self._takes_many: bool | None = None

    def __call__(self, env: int, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]) -> np.ndarray:
        method = self._methods[env]
        try:
            if self._takes_many:
                return np.asarray(method(achieved, desired, infos))
            single = np.array([method(*one) for one in zip(achieved, desired, infos, strict=True)])
        except anything_raised() as error:
            raise CallboardError(f"the environment's {self._name} fails: {one_line(error)}") from error
        if single.shape != (len(achieved),):
            raise CallboardError(f"the environment's {self._name} must give one number, not {single.shape[1:]}")
        if self._takes_many is None and len(achieved) > 1:
            self._takes_many = self._agrees(method, achieved, desired, infos, single)
        return single

    def _agrees(
        self, method: Method, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any], single: np.ndarray
    ) -> bool:
        try:
            many = np.asarray(method(achieved, desired, infos))
        except anything_raised():  # It takes single goals alone.
            return False
        return many.shape == single.shape and many.dtype.kind in "fiub" and np.array_equal(many, single)


def goal_rewards(
    environment: BatchedEnvironment, singles: Sequence[Any], vector: gymnasium.vector.VectorEnv | None = None
) -> GoalRewards | None:
    """Returns what the Gymnasium environments of a batch say of other goals; None if they have none, or no rewards.

    Args:
      environment: the batch.
      singles: its environments, or others whose methods do the same.
      vector: the vector environment that steps them, with its wrappers, if there is one.

    Raises:
      CallboardError: a wrapper changes the rewards of what has `compute_reward`, or goals that are choices are
        numbered differently.
    """
    observation = environment.spec.observation
    if not isinstance(observation, dict) or not {ACHIEVED, DESIRED} <= observation.keys():
        return None
    achieved, desired = (encoding_of(environment.spec).observation[part] for part in (ACHIEVED, DESIRED))
    if isinstance(achieved, Leaf) and isinstance(desired, Leaf) and not np.array_equal(achieved.first, desired.first):
        raise CallboardError(
            f"an achieved goal becomes a desired one, but the environment numbers {ACHIEVED} from {achieved.first} and "
            f"{DESIRED} from {desired.first}: number both from the same, or set agent.replay.hindsight.goals to 0"
        )
    found = [
        [one.get_wrapper_attr(name) for one in singles if one.has_wrapper_attr(name)] for name in (REWARD, TERMINATED)
    ]
    if len(found[0]) < environment.batch_size:
        return None
    around = list(_layers(vector, gymnasium.vector.VectorWrapper))
    changing: list[Any] = [layer for layer in around if isinstance(layer, _CHANGING_VECTORS)]
    owners = []
    for one in singles:
        for layer in _layers(one, gymnasium.Wrapper):
            if hasattr(layer, REWARD):
                owners.append(layer)
                break
            if isinstance(layer, _CHANGING):
                changing.append(layer)
    if changing:
        raise CallboardError(
            f"the rewards for other goals are those of {REWARD}, which the wrapper {type(changing[0]).__name__} does "
            f"not change: leave the wrapper out, or give it a {REWARD} of its own"
        )
    return GoalRewards(environment, found[0], found[1] or None, owners)


def _kept(value: Any) -> Any:
    """Returns an info, or a value in it, with copies of what the environment may change later."""
    if isinstance(value, Mapping):
        return {key: _kept(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    return type(value)(map(_kept, value)) if type(value) in (list, tuple) else value


def _layers(environment: Any, kind: Any) -> Iterator[Any]:
    """Yields an environment and what its wrappers, which are of a kind, wrap, from the outermost on."""
    while environment is not None:
        yield environment
        environment = environment.env if isinstance(environment, kind) else None
