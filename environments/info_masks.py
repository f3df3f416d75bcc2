"""Action masks that an environment gives in `info`, moved into its observations."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import tree
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from ..action_masks import MASK, choice_sizes
from ..errors import CallboardError
from .adapters.gymnasium_checks import autoreset_mode, check_has, checked_reset, environment_name, wrong_step
from .adapters.gymnasium_wrappers import NamedWrapper
from .adapters.single_environments import Singles, refuse_singles
from .batches import encoding
from .batches.infos import Info, RowInfos, final_info_rows, info_rows
from .batches.spaces import action_encoding

_REST = "observation"


class MaskFromInfo(gymnasium.Wrapper):
    """A Gymnasium environment whose observations have the parts `observation` and `action_mask`.

    A wrapper by name, for example of Taxi: `--env-wrappers callboard.environments.info_masks:MaskFromInfo`.  By this
    name it is also for vector environments, which get a `VectorMaskFromInfo`, and for environments of PettingZoo.

    Args:
      env: the environment.  Its infos contain the mask: a vector for all discrete choices of its actions, or a nest of
        vectors; the info of an episode's last step need not.
      key: name of the mask in the infos.

    Raises:
      CallboardError: the environment has no discrete actions.
    """

    def __init__(self, env: gymnasium.Env, key: str = MASK):
        super().__init__(env)
        self._key = key
        self._size = _checked_size(env.action_space, env)
        self.observation_space = space_with_mask(env.observation_space, self._size)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the environment."""
        observation, info = checked_reset(self.env, self.env.reset(**options))
        return self._with_mask(observation, info or {}, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step of the environment."""
        outcome: Any = self.env.step(action)
        if not isinstance(outcome, tuple) or len(outcome) != 5:
            raise wrong_step(self.env, outcome)
        observation, reward, terminated, truncated, info = outcome
        return self._with_mask(observation, info, terminated or truncated), reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: Info, ended: bool) -> dict[str, Any]:
        mask = read_mask(info, self._key, self._size, environment_name(self.env), needed=not ended)
        return with_mask(observation, mask)


class VectorMaskFromInfo(VectorWrapper):
    """A Gymnasium vector environment whose observations have the parts `observation` and `action_mask`.

    Args:
      env: the vector environment, which resets by itself in either mode.  Its infos contain the masks as
        `MaskFromInfo` says, for all environments: arrays `[B, N]`, or arrays of objects `[B]`.  Where an episode ended
        and the next began in the same step, that is the mask of the next; the one of the final observation may be in
        `final_info`.
      key: name of the mask in the infos.

    Raises:
      CallboardError: the environment has no discrete actions, or does not reset automatically.
    """

    def __init__(self, env: VectorEnv, key: str = MASK):
        check_has(env, ("num_envs", "single_observation_space", "single_action_space"))
        super().__init__(env)
        self._key = key
        self._size = _checked_size(env.single_action_space, env)
        self._same_step = autoreset_mode(env) is AutoresetMode.SAME_STEP
        self.single_observation_space = space_with_mask(env.single_observation_space, self._size)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the environments, or those in `options["reset_mask"]`; the masks of the others are then all ones."""
        # Before the reset, which takes the option out.
        needed = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        observations, info = self.env.reset(seed=seed, options=options)
        return with_mask(observations, self._masks(self._rows(info), needed)), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes a step of the environments."""
        observations, rewards, terminations, truncations, info = self.env.step(actions)
        ended = np.logical_or(terminations, truncations)
        needed = np.ones_like(ended) if self._same_step else ~ended
        masks = self._masks(self._rows(info), needed)
        return with_mask(observations, masks), rewards, terminations, truncations, self._with_final_masks(info)

    def _rows(self, info: Info) -> list[dict[str, Any]]:
        if isinstance(info, RowInfos):
            return info_rows(info, self.num_envs)
        own = {key: info[key] for key in (self._key, f"_{self._key}") if key in info}
        parts = own.get(self._key)
        if isinstance(parts, tuple) and all(len(part) == self.num_envs for part in tree.flatten(parts)):
            # A vector for each choice.
            flat = [np.reshape(part, (self.num_envs, -1)) for part in tree.flatten(parts)]
            own[self._key] = np.concatenate(flat, axis=-1)
        return info_rows(own, self.num_envs)

    def _masks(self, rows: Sequence[Info], needed: Sequence[bool] | np.ndarray) -> np.ndarray:
        name = environment_name(self.env)
        pairs = zip(rows, needed, strict=True)
        return np.stack([read_mask(row, self._key, self._size, name, needed) for row, needed in pairs])

    def _with_final_masks(self, info: dict[str, Any]) -> dict[str, Any]:
        if "final_obs" not in info:
            return info
        final = info["final_obs"]
        masks = self._masks(final_info_rows(info, self.num_envs), np.zeros(self.num_envs, np.bool_))
        if not (isinstance(final, np.ndarray) and final.dtype == object):
            return {**info, "final_obs": with_mask(final, masks)}
        shown = np.empty(self.num_envs, object)
        for row, observation in enumerate(final):
            shown[row] = None if observation is None else with_mask(observation, masks[row])
        return {**info, "final_obs": shown}


def mask_size(action_space: gymnasium.Space) -> int:
    """Returns the number of values of all discrete choices of an action: the size of its mask, 0 if it has none."""
    return int(choice_sizes(encoding.specs_in(action_encoding(action_space))).sum())


def space_with_mask(observation_space: gymnasium.Space, size: int) -> spaces.Dict:
    """Returns the space of observations with a mask of `size` elements."""
    return spaces.Dict({MASK: spaces.MultiBinary(size), _REST: observation_space})


def with_mask(observation: Any, mask: np.ndarray) -> dict[str, Any]:
    """Returns an observation with a mask, or observations with masks `[B, N]`."""
    return {MASK: mask, _REST: observation}


def read_mask(info: Info, key: str, size: int, name: str, needed: bool) -> np.ndarray:
    """Returns the mask in an info, int8 `[size]`; ones if it is missing and not needed.

    Args:
      info: the info, with a vector, or a nest of vectors, under `key`.
      key: name of the mask.
      size: number of elements of the mask.
      name: name of the environment, for messages.
      needed: whether an action follows.

    Raises:
      CallboardError: it is missing, has another size, or elements other than 0 and 1.
    """
    if key not in info:
        if needed:
            raise CallboardError(f"{name} gives no {key!r} in its info")
        return np.ones(size, np.int8)
    try:
        mask = np.concatenate([np.empty(0, np.bool_), *(np.ravel(part) for part in tree.flatten(info[key]))])
    except (ValueError, TypeError) as error:  # Of rows of several lengths, and of parts of several kinds.
        raise CallboardError(f"{name} has {info[key]!r:.80} as the mask in its info: make it a vector") from error
    if len(mask) != size:
        raise CallboardError(f"{name} has a mask of {len(mask)} elements in its info, for {size} values")
    wrong = mask[(mask != 0) & (mask != 1)] if mask.dtype.kind in "biuf" else mask
    if len(wrong):
        raise CallboardError(f"{name} has {wrong[0]!r:.80} in the mask of its info: let it be 0 or 1 for each action")
    return mask.astype(np.int8)


def vector_with_masks(environment: VectorEnv, singles: Singles, name: str, fix: str) -> VectorEnv:
    """Returns a vector environment with the masks of its infos in its observations, if `MaskFromInfo` is wanted.

    Args:
      environment: the vector environment.
      singles: the settings; nothing else may be wanted.
      name: the environment's name, for messages.
      fix: as in `refuse_singles`.

    Raises:
      CallboardError: other wrappers or processes are wanted, or the environment has no discrete actions.
    """
    if singles.processes or any(wrapper.kind is not MaskFromInfo for wrapper in singles.wrappers):
        refuse_singles(name, singles, fix)
    for wrapper in singles.wrappers:
        environment = VectorMaskFromInfo(environment, **wrapper.arguments)
    return environment


def agents_mask_key(wrappers: Sequence[NamedWrapper]) -> str | None:
    """Returns the name of the mask in the infos of an environment with several agents; None if it is not wanted.

    Raises:
      CallboardError: wrappers other than `MaskFromInfo` are wanted.
    """
    for wrapper in wrappers:
        if wrapper.kind is not MaskFromInfo:
            raise CallboardError(
                f"env_wrappers is for environments with one agent, but for {MaskFromInfo.__module__}:"
                f"{MaskFromInfo.__name__}; leave {wrapper.name!r} out"
            )
    return wrappers[-1].arguments.get("key", MASK) if wrappers else None


def _checked_size(action_space: gymnasium.Space, environment: Any) -> int:
    size = mask_size(action_space)
    if not size:
        raise CallboardError(f"{environment_name(environment)} has no discrete actions that could be masked")
    return size
