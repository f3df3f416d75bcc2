"""Small data sets of episodes that were played with known actions."""

from typing import Any

import gymnasium
import numpy as np
from dm_env import specs as dm_specs

from callboard.environments.batches.encoding import encoding_of
from callboard.environments.recorded import EpisodeFiles
from callboard.environments.recorded.episode_columns import DISCOUNTS, EpisodeColumns, leaves_of
from callboard.environments.recorded.native_values import space_of
from callboard.specs import EnvironmentSpec

_SPACE = gymnasium.make("CartPole-v1").observation_space
assert isinstance(_SPACE, gymnasium.spaces.Box)
CARTPOLE = EnvironmentSpec(
    dm_specs.BoundedArray(_SPACE.shape, np.float32, _SPACE.low, _SPACE.high), dm_specs.DiscreteArray(2, np.int32)
)


def write(folder: Any, spec: EnvironmentSpec, episodes: list[dict[str, Any]], metadata: Any = ()) -> str:
    """Writes a data set; each episode is a dictionary of the arguments of `columns`."""
    encoding = encoding_of(spec)
    files = EpisodeFiles(folder, spec, dict(metadata), 1e9)
    files.append([columns(encoding, **episode) for episode in episodes])
    return str(folder)


def columns(
    encoding: Any, observation: Any, action: Any, reward: Any, terminated: bool, seed: Any = None, discount: Any = None
) -> Any:
    length = len(reward)
    ends = np.arange(length) == length - 1
    leaves = [
        *leaves_of(space_of(encoding.observation), observation, "observations"),
        *leaves_of(space_of(encoding.action), action, "actions"),
    ]
    values = {
        **{leaf.path: leaf.column() for leaf in leaves},
        "rewards": np.asarray(reward, np.float32),
        "terminations": ends & terminated,
        "truncations": ends & (not terminated),
    }
    if discount is not None:
        values[DISCOUNTS] = np.asarray(discount, np.float32)
    return EpisodeColumns(values, length, seed)


def cartpole_episode(seed: int, steps: int) -> dict[str, Any]:
    """The first steps of an episode in which the actions alternate."""
    environment = gymnasium.make("CartPole-v1")
    observations = [environment.reset(seed=seed)[0]]
    actions = np.arange(steps) % 2
    observations += [environment.step(int(action))[0] for action in actions]
    return {
        "observation": np.array(observations, np.float32),
        "action": actions,
        "reward": np.ones(steps),
        "terminated": False,
        "seed": seed,
    }
