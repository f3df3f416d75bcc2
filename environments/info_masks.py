"""Action masks that an environment gives in `info`, moved into its observations."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import tree
from gymnasium import spaces

from ..action_masks import MASK, choice_sizes
from ..errors import CallboardError
from . import encoding
from .gymnasium_checks import environment_name
from .spaces import action_encoding


class MaskFromInfo(gymnasium.Wrapper):
    """A Gymnasium environment whose observations have the parts `observation` and `action_mask`.

    A wrapper by name, for example of Taxi: `--env-wrappers callboard.environments.info_masks:MaskFromInfo`.

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
        self._size = int(choice_sizes(encoding.spec(action_encoding(env.action_space))).sum())
        if not self._size:
            raise CallboardError(f"{environment_name(env)} has no discrete actions that could be masked")
        self.observation_space = spaces.Dict(
            {MASK: spaces.MultiBinary(self._size), "observation": env.observation_space}
        )

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the environment."""
        observation, info = self.env.reset(**options)
        return self._with_mask(observation, info, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step of the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(observation, info, terminated or truncated), reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: Mapping[str, Any], ended: bool) -> dict[str, Any]:
        if self._key not in info:
            if not ended:
                raise CallboardError(f"{environment_name(self.env)} gives no {self._key!r} in its info")
            return {MASK: np.ones(self._size, np.int8), "observation": observation}
        parts = [np.ravel(part) for part in tree.flatten(info[self._key])]
        mask = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(mask) != self._size:
            raise CallboardError(
                f"{environment_name(self.env)} has a mask of {len(mask)} elements in its info, for {self._size} values"
            )
        return {MASK: (mask != 0).astype(np.int8), "observation": observation}
