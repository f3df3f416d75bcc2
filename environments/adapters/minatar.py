"""MinAtar games by Gymnasium id (`MinAtar/Breakout-v1`): Atari games on a 10x10 grid."""

import colorsys
import dataclasses
import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs

from ...data import Nest, Timestep
from ...settings.setting_types import PositiveInt, UnitInterval
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, check_seeds, discrete_actions, first_timestep
from ..batches.options import read_options
from ..batches.user_errors import needs_package, unknown_environment

_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
NAMESPACE = "MinAtar/"
IDS = {f"{game.title().replace('_', '')}-v{version}": (game, version == 1) for game in _GAMES for version in (0, 1)}
_PIXELS = 32


@dataclasses.dataclass(frozen=True)
class MinAtarOptions:
    """Options of MinAtar games; the defaults are MinAtar's (Young and Tian 2019).

    Attributes:
      sticky_action_prob: probability that the previous action is repeated instead of the current one.
      difficulty_ramping: whether games get harder over time, in games that support it.
      max_episode_steps: steps after which an episode is truncated; None for no limit.
    """

    sticky_action_prob: UnitInterval = 0.1
    difficulty_ramping: bool = True
    max_episode_steps: PositiveInt | None = None


def make_minatar(id: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of the MinAtar game `id`.

    Args:
      id: `MinAtar/<Game>-v1`, with the actions that have an effect in the game, or `-v0`, with all six.
      batch_size: the number of games.
      seeds: one seed per game.
      options: fields of `MinAtarOptions`.

    Raises:
      CallboardError: if the game or an option is unknown, or minatar is not installed.
    """
    settings = check_minatar(id, options)
    check_seeds(batch_size, seeds)
    game, minimal = IDS[id.removeprefix(NAMESPACE)]
    with needs_package(id, "minatar", "callboard[atari]"):
        create = _load(game)
    games = [create(ramping=settings.difficulty_ramping) for _ in range(batch_size)]
    return MinAtarBatch(games, seeds, minimal, settings)


def minatar_ids() -> list[str]:
    """Returns the ids of all games, such as `MinAtar/Breakout-v1`."""
    return [NAMESPACE + short for short in IDS]


def check_minatar(id: str, options: Mapping[str, Any]) -> MinAtarOptions:
    """Checks an id and options without making an environment; returns the options.

    Raises:
      CallboardError: if the game or an option is unknown.
    """
    short = id.removeprefix(NAMESPACE)
    if short == id or short not in IDS:
        raise unknown_environment(id, IDS, f"the games are {', '.join(IDS)}", NAMESPACE)
    return read_options(id, options, MinAtarOptions)


class MinAtarBatch(BatchedEnvironment):
    """B MinAtar games, seeded individually.

    Observations are bool `[10, 10, C]`, one channel per kind of object.  They take one byte per cell in replay, and
    networks cast them to 0 and 1, whereas uint8 would be taken for pixels and divided by 255.  A lost game is a
    termination.  Freeway, which ends only by a clock that is not observed, is truncated, as at `max_episode_steps`.
    """

    has_own_seeds = True

    def __init__(self, games: Sequence[Any], seeds: Sequence[int], minimal: bool, options: MinAtarOptions) -> None:
        """Takes B games.

        Args:
          games: instances of the class `Env` of a module of `minatar.environments`.
          seeds: one seed per game.
          minimal: whether to use only the actions that have an effect in the game.
          options: options of the games.
        """
        self._games = tuple(games)
        self._randoms = [np.random.RandomState(int(seed) % 2**32) for seed in seeds]
        for game, random in zip(self._games, self._randoms, strict=True):
            # Sticky actions and the game share one generator, as in MinAtar's `Environment`.
            game.random = random
        self._actions = [int(action) for action in games[0].minimal_action_set()] if minimal else list(range(6))
        self._shape = tuple(games[0].state_shape())
        self._sticky = options.sticky_action_prob
        self._limit = options.max_episode_steps or np.inf
        self._last_actions = [0] * len(games)
        self._lengths = [0] * len(games)
        self._over = np.zeros(len(games), np.bool_)

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            observation=specs.BoundedArray(self._shape, np.bool_, False, True),
            action=specs.DiscreteArray(len(self._actions), dtype=np.int32),
        )

    @property
    def batch_size(self) -> int:
        return len(self._games)

    def reset(self) -> Timestep:
        for index in range(self.batch_size):
            self._begin(index)
        self._over = np.zeros(self.batch_size, np.bool_)
        return first_timestep(self._observe(), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        reward = np.zeros(self.batch_size, np.float32)
        discount = np.ones(self.batch_size, np.float32)
        over = np.zeros(self.batch_size, np.bool_)
        for index, action in enumerate(discrete_actions(actions, self.batch_size, len(self._actions)).tolist()):
            if self._over[index]:
                self._begin(index)
                continue
            game = self._games[index]
            # The previous action carries over from the previous episode, as in MinAtar.
            if self._randoms[index].rand() >= self._sticky:
                self._last_actions[index] = self._actions[action]
            reward[index], ended = game.act(self._last_actions[index])
            self._lengths[index] += 1
            out_of_time = getattr(game, "terminate_timer", 0) < 0
            if ended and not out_of_time:
                discount[index] = 0.0
            over[index] = ended or self._lengths[index] >= self._limit
        first, self._over = self._over, over
        return Timestep(self._observe(), reward, discount, first, over.copy())

    def render(self) -> np.ndarray:
        state = self._games[0].state()
        channels = state.shape[-1]
        hues = [colorsys.hsv_to_rgb(channel / channels, 0.7, 1.0) for channel in range(channels)]
        palette = np.array([(0.0, 0.0, 0.0), *hues])
        # Where objects overlap, the last channel is on top.
        top = (state * np.arange(1, channels + 1)).max(axis=-1)
        return np.round(255 * palette[top]).astype(np.uint8).repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

    def close(self) -> None:
        pass

    def _begin(self, index: int) -> None:
        self._games[index].reset()
        self._lengths[index] = 0

    def _observe(self) -> np.ndarray:
        return np.stack([game.state() for game in self._games])


def _load(game: str) -> Any:
    """Imports the class `Env` of a MinAtar game directly from its file.

    `import minatar` also imports seaborn, pandas and matplotlib for rendering, which takes seconds, and writes to the
    root logger if one of them is missing.
    """
    package = importlib.util.find_spec("minatar")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'minatar'")
    file = pathlib.Path(package.submodule_search_locations[0]) / "environments" / f"{game}.py"
    spec = importlib.util.spec_from_file_location(f"minatar.environments.{game}", file)
    if spec is None or spec.loader is None or not file.exists():
        raise ModuleNotFoundError(f"minatar has no game {game!r}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Env
