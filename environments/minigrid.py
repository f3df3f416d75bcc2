"""MiniGrid and BabyAI (Chevalier-Boisvert et al. 2023) by Gymnasium id, with the grid as one-hot planes."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

from ..errors import CallboardError
from .adapters.single_environments import Singles, make_batch
from .batches.batched import BatchedEnvironment
from .batches.user_errors import keywords, needs_package, unknown_environment, unknown_option
from .gymnasium_registry import check_gymnasium, make_single

NAMES = ("MiniGrid-", "BabyAI-")
"""Beginnings of all ids."""
_OWN = ("fully_observed",)
_GIVEN = ("mission_space", "grid_size")
"""Arguments that the environment gives to the classes that it extends."""
_VALUES = (11, 6, 4)
"""Numbers of objects, colors, and states or directions of a cell of the grid."""


def make_minigrid(
    id: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any], singles: Singles
) -> BatchedEnvironment:
    """Makes a batch of the environment `id` of MiniGrid or BabyAI.

    Observations are a dictionary: `image`, bool `[width, height, 21]`, one plane per object, color and state of a cell;
    and `direction`, a choice of four.  The text of the mission is left out: `gymnasium:` before an id gives MiniGrid's
    own observations, for wrappers of `minigrid.wrappers`.

    Args:
      id: the id, such as `MiniGrid-DoorKey-5x5-v0`.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: `fully_observed` (default false) shows the whole grid instead of the agent's view of 7 x 7 cells.  All
        other options are the environment's.
      singles: how the environments are wrapped and stepped.

    Raises:
      CallboardError: if the id or an option is unknown, or minigrid is not installed.
    """
    check_minigrid(id, options)
    return make_batch(functools.partial(_make_single, id, dict(options)), seeds, singles, id)


def check_minigrid(id: str, options: Mapping[str, Any]) -> None:
    """Checks an id and options without making an environment.

    Raises:
      CallboardError: if the id or an option is unknown, or minigrid is not installed.
    """
    with needs_package(id, "minigrid", "callboard[minigrid]"):
        known = minigrid_ids()
    if id not in gymnasium.registry:
        raise unknown_environment(id, known, "give an id of MiniGrid, such as 'MiniGrid-DoorKey-5x5-v0'")
    for key in _OWN:
        if not isinstance(options.get(key, False), bool):
            raise CallboardError(f"environment {id!r}: {key} must be true or false, not {options[key]!r}")
    # Every environment passes what it does not know on to the class that it extends.
    entry_point: Any = gymnasium.spec(id).entry_point
    environment: Any = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    classes = environment.__mro__
    taken = [key for each in classes if each is not object for key in keywords(each)[0] if key not in _GIVEN]
    for key in options:
        if key not in (*_OWN, *taken, "max_episode_steps"):
            raise unknown_option(id, key, (*_OWN, *taken))
    check_gymnasium(id, {key: value for key, value in options.items() if key not in _OWN})


def minigrid_ids() -> list[str]:
    """Returns the ids of all environments.

    Raises:
      ImportError: minigrid is not installed.
    """
    import minigrid  # noqa: F401  Registers its ids with Gymnasium.

    return [id for id in gymnasium.registry if id.startswith(NAMES)]


def _make_single(id: str, options: Mapping[str, Any], index: int) -> gymnasium.Env:
    minigrid_ids()
    own = {key: value for key, value in options.items() if key not in _OWN}
    environment = make_single(id, own)
    if options.get("fully_observed", False):
        from minigrid.wrappers import FullyObsWrapper

        environment = FullyObsWrapper(environment)
    return Planes(environment)


class Planes(gymnasium.ObservationWrapper):
    """Shows the grid as bool planes, and no mission.

    Args:
      environment: an environment of MiniGrid whose image is uint8 `[width, height, 3]`: object, color and state.
    """

    def __init__(self, environment: gymnasium.Env):
        super().__init__(environment)
        space: Any = environment.observation_space
        size = space["image"].shape[:2]
        # Bool, because networks divide uint8, which they take for pixels, by 255.
        image = spaces.Box(0, 1, (*size, sum(_VALUES)), np.dtype(bool))  # type: ignore[arg-type]
        self.observation_space = spaces.Dict({"image": image, "direction": space["direction"]})

    def observation(self, observation: Any) -> dict[str, Any]:
        image = observation["image"]
        planes = [image[..., part, np.newaxis] == np.arange(count) for part, count in enumerate(_VALUES)]
        return {"image": np.concatenate(planes, axis=-1), "direction": observation["direction"]}
