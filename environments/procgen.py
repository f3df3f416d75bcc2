"""The games of Procgen (Cobbe et al. 2020), `procgen:coinrun`: a batch of them in one native environment."""

import dataclasses
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from dm_env import specs

from ..data import CallboardError, Nest, Timestep
from ..specs import EnvironmentSpec
from .batched import BatchedEnvironment, check_seeds, discrete_actions, first_timestep, picture
from .options import check_range, read_options
from .user_errors import needs_package, unknown_environment

Mode = Literal["easy", "hard", "extreme", "memory", "exploration"]

_ACTIONS = 15
_RESET = -1
_FRAMES_PER_SECOND = 15.0
"""Of Procgen's own videos."""
"""The action with which Procgen ends an episode and begins the next."""
_LEVELS = 2**31 - 1

# What Procgen does not check before it ends the process, from its source.
GAMES = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot"),
    *("heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
_MODE_GAMES = {
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
    "exploration": ("caveflyer", "climber", "coinrun", "heist", "jumper", "leaper", "maze", "ninja"),
}
_TIME_LIMITS = {"bigfish": 6000, "bossfight": 4000, "plunder": 4000, "leaper": 500, "maze": 500}
_TIME_LIMIT = 1000


@dataclasses.dataclass(frozen=True)
class ProcgenOptions:
    """What is played; the defaults are Procgen's own.

    Attributes:
        num_levels: how many levels there are, from `start_level` on; 0 for all, and then `start_level` means nothing.
        start_level: the first of them.
        distribution_mode: 'easy' and 'hard' exist for all games, 'extreme', 'memory' and 'exploration' for some;
            'exploration' is one level, chosen by Procgen.
        use_sequential_levels: whether a solved level is followed by the next one in the same episode.
        center_agent: whether the picture follows the agent.
        use_backgrounds: pictures behind the levels, or plain black.
        use_monochrome_assets: rectangles of one color instead of pictures.
        restrict_themes: one theme in games that have several.
        use_generated_assets: random pictures instead of drawn ones.
        paint_vel_info: whether the picture shows the agent's velocity in its corner, in games where it matters.
        num_threads: that step the games, besides the one that asks.  Actors are many already: 0 is the fastest where
            they share the cores.
        render_mode: 'rgb_array' for pictures of 512x512, which every step then draws for every game; without it they
            are the 64x64 that agents see.
    """

    num_levels: int = 0
    start_level: int = 0
    distribution_mode: Mode = "hard"
    use_sequential_levels: bool = False
    center_agent: bool = True
    use_backgrounds: bool = True
    use_monochrome_assets: bool = False
    restrict_themes: bool = False
    use_generated_assets: bool = False
    paint_vel_info: bool = False
    num_threads: int = 0
    render_mode: Literal["rgb_array"] | None = None

    def __post_init__(self) -> None:
        check_range(self, "num_levels", 0, _LEVELS)
        check_range(self, "start_level", 0, _LEVELS - self.num_levels)
        check_range(self, "num_threads", 0, 1024)
        if self.distribution_mode == "exploration" and (self.num_levels or self.start_level):
            raise ValueError("'exploration' is a level of its own: leave 'num_levels' and 'start_level' out")


def make_procgen(game: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """A batch of a game of Procgen.  Make it in the process that steps it: it does not survive a fork.

    Args:
        game: such as `coinrun`.
        batch_size: the number of games.
        seeds: one to each game.
        options: the fields of `ProcgenOptions`.

    Raises:
        CallboardError: an unknown game or option, a mode that the game does not have, or procgen is missing.
    """
    name = f"procgen:{game}"
    settings = check_procgen(game, options)
    check_seeds(batch_size, seeds)
    with needs_package(name, "procgen", "procgen==0.10.7"):
        return ProcgenBatch(game, seeds, settings)


def check_procgen(game: str, options: Mapping[str, Any]) -> ProcgenOptions:
    """The options of a game; a wrong name and wrong options are refused.  Nothing is made."""
    name = f"procgen:{game}"
    if game not in GAMES:
        # Procgen's own Gym ids are `procgen:procgen-coinrun-v0`.
        meant = f"procgen:{re.sub('^procgen-|-v[0-9]+$', '', game)}"
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

    Observations are uint8 `[64, 64, 3]`.  The end of an episode is a timestep with `first` and the reward that ended
    it, never `last`; the final observation is lost.

    Procgen does not tell how an episode ended.  It has a time limit of its own for each game, though, which the
    observation does not show, and `ProcgenBatch` counts: an episode that ends with its last permitted step without a
    solved level was cut off, and the discount stays 1; all others terminated.  (A game that is lost in that very step
    is taken for one that was cut off.)

    One generator draws the levels of all games: the seeds are mixed into one, and what a game does depends on the
    whole batch of them.
    """

    def __init__(self, game: str, seeds: Sequence[int], options: ProcgenOptions) -> None:
        """Starts B games.

        Args:
            game: one of Procgen's sixteen.
            seeds: one to each game.
            options: what is played.

        Raises:
            ImportError: procgen is missing.
        """
        settings = dataclasses.asdict(options)
        if options.distribution_mode == "exploration":
            del settings["num_levels"], settings["start_level"]
        seed = int(np.random.SeedSequence([int(seed) for seed in seeds]).generate_state(1)[0]) >> 1
        self._game = game
        self._environment = _load()(num=len(seeds), env_name=game, rand_seed=seed, **settings)
        self._draws = options.render_mode is not None
        self._sequential = options.use_sequential_levels
        in_memory = game == "jumper" and options.distribution_mode == "memory"
        self._limit = 2000 if in_memory else _TIME_LIMITS.get(game, _TIME_LIMIT)
        self._lengths = np.zeros(len(seeds), np.int64)
        self._untouched = True
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            observation=specs.BoundedArray((64, 64, 3), np.uint8, 0, 255),
            action=specs.DiscreteArray(_ACTIONS, dtype=np.int32),
        )

    @property
    def batch_size(self) -> int:
        return len(self._lengths)

    def reset(self) -> Timestep:
        # A new environment has begun its episodes already.  Later ones are given up, for levels drawn anew.
        if not self._untouched:
            self._environment.act(np.full(self.batch_size, _RESET, np.int32))
        self._untouched = False
        self._lengths[:] = 0
        _, observation, _ = self._environment.observe()
        return first_timestep(observation["rgb"], self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        self._environment.act(discrete_actions(actions, self.batch_size, _ACTIONS))
        # These are copies already.
        reward, observation, first = self._environment.observe()
        self._lengths += 1
        cut_off = first & (self._lengths >= self._limit)
        if self._sequential or cut_off.any():
            solved = np.array([info["prev_level_complete"] for info in self._environment.get_info()], np.bool_)
            cut_off &= ~solved
            # In a sequence of levels the limit is that of each.
            self._lengths[solved] = 0
        self._lengths[first] = 0
        return Timestep(
            observation=observation["rgb"],
            reward=reward,
            discount=np.where(first & ~cut_off, np.float32(0), np.float32(1)),
            first=first,
            last=np.zeros(self.batch_size, np.bool_),
        )

    @property
    def frames_per_second(self) -> float:
        return _FRAMES_PER_SECOND

    def render(self) -> np.ndarray:
        if self._draws:
            return picture(self._environment.get_info()[0]["rgb"], f"procgen:{self._game}")
        return picture(self._environment.observe()[1]["rgb"][0], f"procgen:{self._game}")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._environment.close()


def _load() -> Any:
    """The class `ProcgenGym3Env`, without Gym.

    `import procgen` registers its games with Gym, which is no longer maintained and says so on the screen.  Where
    nobody has imported it yet, it finds a registration that does nothing.
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
        # Whoever wants Gym's ids imports the module itself, and calls its function.
        sys.modules.pop(registration, None)
    return ProcgenGym3Env
