"""Procgen games (Cobbe et al. 2020) by name (`procgen:coinrun`), batched in one native environment."""

import dataclasses
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval
from dm_env import specs

from ...data import Nest, Timestep
from ...errors import CallboardError, one_line
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, check_seeds, discrete_actions, first_timestep, picture
from ..batches.infos import Infos, chosen_rows, no_infos
from ..batches.options import read_options
from ..batches.tasks import Task, no_task
from ..batches.user_errors import needs_package, unknown_environment

Mode = Literal["easy", "hard", "extreme", "memory", "exploration"]

_ACTIONS = 15
_RESET = -1
"""Action that makes Procgen end an episode and begin the next."""
_FRAMES_PER_SECOND = 15.0
"""Frame rate of Procgen's own videos."""
_LEVELS = 2**31 - 1

# Procgen ends the process on invalid games and modes, so they are checked here.  From its source.
GAMES = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot"),
    *("heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
_MODE_GAMES = {
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
    "exploration": ("caveflyer", "climber", "coinrun", "heist", "jumper", "leaper", "maze", "ninja"),
}
_GYM_ID = re.compile(r"^procgen-(\w+)-v0$")
"""Ids under which Procgen registers its games, with the same defaults: `procgen:procgen-coinrun-v0`."""
_TIME_LIMITS = {"bigfish": 6000, "bossfight": 4000, "plunder": 4000, "leaper": 500, "maze": 500}
_TIME_LIMIT = 1000


@dataclasses.dataclass(frozen=True)
class ProcgenOptions:
    """Options of Procgen games; the defaults are Procgen's.

    Attributes:
      num_levels: number of levels, from `start_level` on; 0 for all levels, and then `start_level` has no effect.
      start_level: the first level.
      distribution_mode: 'easy' and 'hard' exist for all games, 'extreme', 'memory' and 'exploration' for some;
        'exploration' is a single level chosen by Procgen.
      use_sequential_levels: whether a solved level is followed by the next one in the same episode.
      center_agent: whether the view follows the agent.
      use_backgrounds: whether levels have background images instead of plain black.
      use_monochrome_assets: whether to draw rectangles of one color instead of images.
      restrict_themes: whether games with several themes use only one.
      use_generated_assets: whether to use randomly generated images instead of the game's own.
      paint_vel_info: whether to paint the agent's velocity in a corner, in games where it matters.
      num_threads: threads that step the games, besides the calling thread.  0 is the fastest where several actors
        share the cores.
      render_mode: 'rgb_array' to render at 512x512, which draws every game at every step; otherwise rendering shows
        the agents' 64x64 observations.
    """

    num_levels: Annotated[int, Interval(ge=0, le=_LEVELS)] = 0
    start_level: Annotated[int, Interval(ge=0, le=_LEVELS)] = 0
    distribution_mode: Mode = "hard"
    use_sequential_levels: bool = False
    center_agent: bool = True
    use_backgrounds: bool = True
    use_monochrome_assets: bool = False
    restrict_themes: bool = False
    use_generated_assets: bool = False
    paint_vel_info: bool = False
    num_threads: Annotated[int, Interval(ge=0, le=1024)] = 0
    render_mode: Literal["rgb_array"] | None = None

    def __post_init__(self) -> None:
        if self.start_level + self.num_levels > _LEVELS:
            raise ValueError(f"the last level is {_LEVELS}; lower 'start_level' or 'num_levels'")
        if self.distribution_mode == "exploration" and (self.num_levels or self.start_level):
            raise ValueError("'exploration' is a level of its own; leave 'num_levels' and 'start_level' out")


def make_procgen(game: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of a Procgen game, which must be stepped in the same process, since it does not survive a fork.

    Args:
      game: name of the game, such as `coinrun`, or its id in Gym, `procgen-coinrun-v0`.
      batch_size: the number of games.
      seeds: one seed per game.
      options: fields of `ProcgenOptions`.

    Raises:
      CallboardError: if the game or an option is unknown, the game does not have the mode, or procgen is not
        installed.
    """
    name = f"procgen:{game}"
    settings = check_procgen(game, options)
    game = _GYM_ID.sub(r"\1", game)
    check_seeds(batch_size, seeds)
    try:
        with needs_package(name, "procgen", "procgen==0.10.7"):
            return ProcgenBatch(game, seeds, settings)
    except OSError as error:
        raise CallboardError(
            f"environment {name!r}: Procgen's library cannot be loaded ({one_line(error)}); it needs libglib, on "
            "Debian and Ubuntu `apt-get install libglib2.0-0`"
        ) from error


def check_procgen(game: str, options: Mapping[str, Any]) -> ProcgenOptions:
    """Checks a game and options without making an environment; returns the options.

    Raises:
      CallboardError: if the game or an option is unknown, or the game does not have the mode.
    """
    name, given = f"procgen:{game}", game
    game = _GYM_ID.sub(r"\1", game)
    if game not in GAMES:
        meant = f"procgen:{re.sub('^procgen-|-v[0-9]+$', '', given)}"
        error = unknown_environment(meant, GAMES, f"the games are {', '.join(GAMES)}", "procgen:")
        raise CallboardError(str(error).replace(repr(meant), repr(name), 1))
    settings = read_options(name, options, ProcgenOptions)
    if game not in _MODE_GAMES.get(settings.distribution_mode, GAMES):
        modes = ["easy", "hard", *(mode for mode, games in _MODE_GAMES.items() if game in games)]
        raise CallboardError(
            f"environment {name!r} has no 'distribution_mode' {settings.distribution_mode!r}: it has {', '.join(modes)}"
        )
    return settings


class ProcgenBatch(BatchedEnvironment):
    """B games in one `ProcgenGym3Env`, which resets in the same step.

    Observations are uint8 `[64, 64, 3]`.  The end of an episode is a timestep with `first` and the final reward, never
    `last`; the final observation is lost.

    Procgen does not report how an episode ended.  Each game has a time limit, which is not observed, so `ProcgenBatch`
    counts steps: an episode that ends at the limit without a solved level is truncated, and its discount stays 1; all
    others are terminated.  (A game lost in exactly that step is also treated as truncated.)

    One generator samples the levels of all games: the seeds are mixed into one, and each game depends on the whole
    batch.

    A task is a mapping of options, such as `{num_levels: 10}`, that replace those of the constructor.  A second batch
    of games is made with them, and each game moves there at the end of its episode; until the last one has, both
    batches are stepped.  A task that is set in the meantime begins after that.
    """

    def __init__(self, game: str, seeds: Sequence[int], options: ProcgenOptions) -> None:
        """Starts B games.

        Args:
          game: one of `GAMES`.
          seeds: one seed per game.
          options: options of the games.

        Raises:
          ImportError: if procgen is not installed.
        """
        self._game = game
        self._seeds = [int(seed) for seed in seeds]
        self._options = options
        self._games = _Games(game, self._seeds, options)
        self._next: _Games | None = None
        """The games with the new task; None unless some games have still to move there."""
        self._moved = np.zeros(len(seeds), np.bool_)
        self._pending: ProcgenOptions | None = None
        self._tasks = 0
        self._untouched = True
        self._keeps_infos = False
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            observation=specs.BoundedArray((64, 64, 3), np.uint8, 0, 255),
            action=specs.DiscreteArray(_ACTIONS, dtype=np.int32),
        )

    @property
    def batch_size(self) -> int:
        return len(self._seeds)

    def reset(self) -> Timestep:
        if self._pending is not None:
            if self._next is not None:
                self._next.close()
            self._next, self._pending = self._make_games(self._pending), None
            self._untouched = True
        if self._next is not None:
            self._replace_games(self._next)
        # A new environment has already begun its episodes.  Later resets abandon them and sample new levels.
        if not self._untouched:
            self._games.step(np.full(self.batch_size, _RESET, np.int32))
        self._untouched = False
        timestep = first_timestep(self._games.begin(), self.batch_size)
        if self._keeps_infos:
            self.infos = Infos(no_infos(self.batch_size), self._games.infos())
        return timestep

    def step(self, actions: Nest) -> Timestep:
        checked = discrete_actions(actions, self.batch_size, _ACTIONS)
        if self._next is None and self._pending is not None:
            self._next, self._pending = self._make_games(self._pending), None
        timestep = self._games.step(checked)
        if self._next is not None:
            return self._step_both(self._next, checked, timestep)
        if self._keeps_infos:
            self._store_infos(timestep.first, self._games.infos(), self._games.infos())
        return timestep

    def keep_infos(self) -> None:
        self._keeps_infos = True

    def set_task(self, task: Task) -> None:
        if not isinstance(task, Mapping | None):
            raise no_task(
                f"procgen:{self._game}", f"a task is a mapping of options, such as {{num_levels: 10}}, not {task!r}"
            )
        self._pending = check_procgen(self._game, {**dataclasses.asdict(self._options), **(task or {})})

    @property
    def frames_per_second(self) -> float:
        return _FRAMES_PER_SECOND

    def render(self) -> np.ndarray:
        games = self._next if self._next is not None and self._moved[0] else self._games
        return picture(games.picture(), f"procgen:{self._game}")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for games in (self._games, self._next):
                if games is not None:
                    games.close()

    def _make_games(self, options: ProcgenOptions) -> "_Games":
        # Seeds of their own: the same ones would repeat the levels of the games before.
        self._tasks += 1
        return _Games(self._game, [*self._seeds, self._tasks], options, len(self._seeds))

    def _replace_games(self, games: "_Games") -> None:
        self._games.close()
        self._games, self._next = games, None
        self._moved = np.zeros(self.batch_size, np.bool_)

    def _step_both(self, following: "_Games", actions: np.ndarray, before: Timestep) -> Timestep:
        """Steps the games of the new task too, and moves those there whose episodes have ended with `before`."""
        moving = before.first & ~self._moved
        after = following.step(np.where(moving, np.int32(_RESET), actions))
        here = self._moved
        there = here | moving
        # A game that moves shows the end of its episode before, and the first observation of its new one.
        observation = np.where(there[:, np.newaxis, np.newaxis, np.newaxis], after.observation, before.observation)
        reward, discount, first = (
            np.where(here, of_new, of_old) for of_new, of_old in zip(after[1:4], before[1:4], strict=True)
        )
        if self._keeps_infos:
            old, new = self._games.infos(), following.infos()
            self._store_infos(first, chosen_rows(here, new, old), chosen_rows(there, new, old))
        self._moved = there
        if there.all():
            self._replace_games(following)
        return Timestep(observation, reward, discount, first, last=before.last)

    def _store_infos(self, first: np.ndarray, followed: list[Any], begun: list[Any]) -> None:
        self.infos = Infos(followed, chosen_rows(first, begun, no_infos(self.batch_size)))


class _Games:
    """One `ProcgenGym3Env`.

    Args:
      game: one of `GAMES`.
      seeds: the seeds, mixed into one.
      options: options of the games.
      number: number of games; as many as seeds by default.
    """

    def __init__(self, game: str, seeds: Sequence[int], options: ProcgenOptions, number: int | None = None) -> None:
        settings = dataclasses.asdict(options)
        if options.distribution_mode == "exploration":
            del settings["num_levels"], settings["start_level"]
        number = len(seeds) if number is None else number
        seed = int(np.random.SeedSequence(seeds).generate_state(1)[0]) >> 1
        self._environment = _load()(num=number, env_name=game, rand_seed=seed, **settings)
        self._draws = options.render_mode is not None
        self._sequential = options.use_sequential_levels
        in_memory = game == "jumper" and options.distribution_mode == "memory"
        self._limit = 2000 if in_memory else _TIME_LIMITS.get(game, _TIME_LIMIT)
        self._lengths = np.zeros(number, np.int64)

    def begin(self) -> np.ndarray:
        """Returns the observations of new episodes."""
        self._lengths[:] = 0
        return self._environment.observe()[1]["rgb"]

    def step(self, actions: np.ndarray) -> Timestep:
        self._environment.act(actions)
        # These arrays are already copies.
        reward, observation, first = self._environment.observe()
        self._lengths += 1
        cut_off = first & (self._lengths >= self._limit)
        if self._sequential or cut_off.any():
            solved = np.array([info["prev_level_complete"] for info in self._environment.get_info()], np.bool_)
            cut_off &= ~solved
            # In a sequence of levels, the limit applies to each level.
            self._lengths[solved] = 0
        self._lengths[first] = 0
        return Timestep(
            observation=observation["rgb"],
            reward=reward,
            discount=np.where(first & ~cut_off, np.float32(0), np.float32(1)),
            first=first,
            last=np.zeros(len(first), np.bool_),
        )

    def infos(self) -> list[Any]:
        """Returns Procgen's infos without pictures; `prev_level_...` are about the episode before."""
        return [{name: value for name, value in info.items() if name != "rgb"} for info in self._environment.get_info()]

    def picture(self) -> np.ndarray:
        """Returns game 0 as an image."""
        if self._draws:
            return self._environment.get_info()[0]["rgb"]
        return self._environment.observe()[1]["rgb"][0]

    def close(self) -> None:
        self._environment.close()


def _load() -> Any:
    """Imports the class `ProcgenGym3Env` without Gym.

    `import procgen` registers its games with Gym, which is no longer maintained and prints a warning.  Unless procgen
    is already imported, a stub replaces the registration during the import.
    """
    registration = "procgen.gym_registration"
    if "procgen" in sys.modules:
        from procgen import ProcgenGym3Env

        return ProcgenGym3Env
    silent = types.ModuleType(registration)
    silent.register_environments = lambda: None  # type: ignore[attr-defined]
    sys.modules[registration] = silent
    try:
        from procgen import ProcgenGym3Env
    finally:
        # Remove the stub, so that user code can still import the module to register Gym's ids.
        sys.modules.pop(registration, None)
    return ProcgenGym3Env
