"""Atari games by Gymnasium id (`ALE/Breakout-v5`), with the usual preprocessing but without frame stacking."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
from annotated_types import Interval
from dm_env import specs
from gymnasium.vector import VectorEnv

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...settings.setting_types import UnitInterval
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, check_seeds, discrete_actions, first_timestep, picture
from ..batches.infos import Infos, chosen_rows, info_rows, no_infos
from ..batches.options import read_options
from ..batches.user_errors import needs_package, unknown_environment

_NAMESPACE = "ALE/"
_SCREEN = {"img_height": 210, "img_width": 160}
_SEEDS = 2**31
_FRAMES_PER_SECOND = 60.0
"""Frame rate of the console."""
_Pixels = Annotated[int, Interval(ge=8, le=210)]


@dataclasses.dataclass(frozen=True)
class AtariOptions:
    """Options of Atari games; the defaults are those of the v5 ids (Machado et al. 2018, table 5).

    Attributes:
      repeat_action_probability: probability, at each frame, that the emulator repeats its previous action ("sticky
        actions").  Set it to 0 to compare scores with those of Mnih et al. 2015.
      noop_max: maximum number of no-op frames at the start of an episode (Mnih et al. 2015).
      life_loss: whether the discount is 0 where a life is lost; see `AtariBatch`.  For training only.
      frameskip: frames for which an action is repeated; the observation is the maximum of the last two.
      screen_size: height and width of the observation in pixels, or both, such as [96, 72]; at most 210 and 160.
      max_num_frames_per_episode: frames after which an episode is truncated; the default is half an hour of play.
      full_action_space: whether to use all 18 actions instead of those that have an effect in the game.
      num_threads: threads that step the games; 0 for one per core of the process, at most one per game.
      render_mode: 'rgb_array' to render game 0 in color, which runs this game twice.
    """

    repeat_action_probability: UnitInterval = 0.25
    noop_max: Annotated[int, Interval(ge=0, le=100_000)] = 30
    life_loss: bool = False
    frameskip: Annotated[int, Interval(ge=1, le=1000)] = 4
    screen_size: _Pixels | tuple[_Pixels, _Pixels] = 84
    max_num_frames_per_episode: Annotated[int, Interval(ge=1, le=2**30)] = 108_000
    full_action_space: bool = False
    num_threads: Annotated[int, Interval(ge=0, le=1024)] = 0
    render_mode: Literal["rgb_array"] | None = None

    def __post_init__(self) -> None:
        # ALE's resizing is that of an area only if the picture becomes smaller.
        if self.height > _SCREEN["img_height"] or self.width > _SCREEN["img_width"]:
            raise ValueError(f"screen_size is at most [210, 160], the console's, not [{self.height}, {self.width}]")

    @property
    def height(self) -> int:
        """Height of an observation in pixels."""
        return self.screen_size if isinstance(self.screen_size, int) else self.screen_size[0]

    @property
    def width(self) -> int:
        """Width of an observation in pixels."""
        return self.screen_size if isinstance(self.screen_size, int) else self.screen_size[1]


def make_atari(id: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of the Atari game `id`.

    Args:
      id: `ALE/<Game>-v5`.
      batch_size: the number of games.
      seeds: one seed per game.
      options: fields of `AtariOptions`.

    Raises:
      CallboardError: if the game or an option is unknown, or ale-py is not installed.
    """
    game = check_atari(id, options)
    check_seeds(batch_size, seeds)
    return AtariBatch(id, game, seeds, read_options(id, options, AtariOptions))


def atari_ids() -> list[str]:
    """Returns the ids of all games, such as `ALE/Breakout-v5`; none if ale-py is not installed."""
    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401  Registers its ids with Gymnasium.
    return [id for id in gymnasium.registry if id.startswith(_NAMESPACE)]


def check_atari(id: str, options: Mapping[str, Any]) -> str:
    """Checks an id and options without making an environment; returns ALE's name of the game.

    Raises:
      CallboardError: if the game or an option is unknown, or ale-py is not installed.
    """
    with needs_package(id, "ale-py", "callboard[atari]"):
        import ale_py  # Registers its ids with Gymnasium.
        import ale_py.vector_env  # noqa: F401
    games = {
        known.removeprefix(_NAMESPACE): spec.kwargs["game"]
        for known, spec in gymnasium.registry.items()
        if known.startswith(_NAMESPACE)
    }
    short = id.removeprefix(_NAMESPACE)
    if short == id or short not in games:
        raise unknown_environment(id, games, "give an id of ale-py, such as 'ALE/Breakout-v5'", _NAMESPACE)
    read_options(id, options, AtariOptions)
    return games[short]


class AtariBatch(BatchedEnvironment):
    """B Atari games, stepped by the threads of ALE's vector environment.

    Observations are images, by default uint8 `[84, 84, 1]`: grayscale, the maximum of the last two frames, resized by
    area (Mnih et al. 2015).  Frames are stacked in replay and in the policy, not here.  Rewards are the unclipped
    score.  The end of a game is a termination; the limit on frames is not.  Each game depends only on its own seed.

    With `life_loss`, the loss of a life other than the last is a timestep with `first` and a discount of 0, as from a
    library that resets in the same step: the agent learns as if the game had ended there, and the next "episode" begins
    with the same observation of the same game.  No frame is played twice, and no action is ignored.  Episodes and their
    returns are then those of single lives, so evaluate without this option.

    The final observation of a game, or at the limit on frames, does not include the last frame and still shows the
    previous observation: ALE stops there, as Gymnasium's preprocessing does.
    """

    has_own_seeds = True

    def __init__(
        self,
        id: str,
        game: str,
        seeds: Sequence[int],
        options: AtariOptions,
        make_vector: Callable[..., VectorEnv] | None = None,
    ) -> None:
        """Starts B games.

        Args:
          id: the game's id, for messages.
          game: ALE's name of the game, such as `breakout`.
          seeds: one seed per game.
          options: options of the games.
          make_vector: makes an `AtariVectorEnv` from its arguments, if it is not one of this process.
        """
        self._id = id
        self._life_loss = options.life_loss
        self._frameskip = options.frameskip
        self._seeds: np.ndarray | None = np.array([int(seed) % _SEEDS for seed in seeds], np.int64)
        self._height, self._width = options.height, options.width
        size = {"img_height": self._height, "img_width": self._width}
        self._environment = _make_vector(make_vector, game, len(seeds), options, grayscale=True, **size)
        # A second copy of game 0 with the same seed and actions, in color and at the size of the screen.
        self._painter = None
        if options.render_mode is not None:
            self._painter = _make_vector(make_vector, game, 1, options, grayscale=False, **_SCREEN)
        self._painting: np.ndarray | None = None
        self._actions = int(self._environment.single_action_space.n)  # type: ignore[attr-defined]
        self._over = np.zeros(len(seeds), np.bool_)
        self._lives = np.zeros(len(seeds), np.int32)
        self._keeps_infos = False
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            observation=specs.BoundedArray((self._height, self._width, 1), np.uint8, 0, 255),
            action=specs.DiscreteArray(self._actions, dtype=np.int32),
        )

    @property
    def batch_size(self) -> int:
        return len(self._over)

    def reset(self) -> Timestep:
        seeds, self._seeds = self._seeds, None
        observation, info = self._environment.reset(seed=seeds)  # type: ignore[arg-type]
        if self._painter is not None:
            painting, _ = self._painter.reset(seed=None if seeds is None else seeds[:1])  # type: ignore[arg-type]
            self._painting = painting[0, 0]
        self._over = np.zeros(self.batch_size, np.bool_)
        self._lives = info["lives"]
        if self._keeps_infos:
            self.infos = Infos(no_infos(self.batch_size), info_rows(info, self.batch_size))
        return first_timestep(self._image(observation), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        checked = discrete_actions(actions, self.batch_size, self._actions)
        # A finished game ignores its action and restarts, with reward 0 and neither termination nor truncation.
        observation, reward, terminated, truncated, info = self._environment.step(checked)
        if self._painter is not None:
            self._painting = self._painter.step(checked[:1])[0][0, 0]
        last = terminated | truncated
        first, self._over = self._over, last
        restarted = first
        if self._life_loss:
            # Some games show 0 lives for a while before they end; that is the end of the game, not another lost life.
            lost = (info["lives"] < self._lives) & (info["lives"] > 0) & ~first & ~terminated
            terminated = terminated | lost
            first = first | (lost & ~last)
        self._lives = info["lives"]
        if self._keeps_infos:
            # After the loss of a life, the next episode begins with the info that came with it.
            rows, nothing = info_rows(info, self.batch_size), no_infos(self.batch_size)
            self.infos = Infos(chosen_rows(restarted, nothing, rows), chosen_rows(first, rows, nothing))
        return Timestep(
            observation=self._image(observation),
            reward=reward.astype(np.float32),
            discount=np.where(terminated, np.float32(0), np.float32(1)),
            first=first,
            last=last.copy(),
        )

    def keep_infos(self) -> None:
        self._keeps_infos = True

    @property
    def frames_per_second(self) -> float:
        return _FRAMES_PER_SECOND / self._frameskip

    def render(self) -> np.ndarray:
        if self._painting is None:
            raise CallboardError(f"{self._id} has no picture to show: make it with the option render_mode='rgb_array'")
        return picture(self._painting, self._id)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for environment in (self._environment, self._painter):
                if environment is not None:
                    environment.close()
                    environment.__dict__.pop("ale", None)  # This ends its threads.

    def _image(self, observation: np.ndarray) -> np.ndarray:
        # ALE returns a new array with a stack of one frame, [B, 1, height, width].
        return observation.reshape(self.batch_size, self._height, self._width, 1)


def _make_vector(
    make: Callable[..., VectorEnv] | None, game: str, batch_size: int, options: AtariOptions, **image: Any
) -> VectorEnv:
    if make is None:
        from ale_py.vector_env import AtariVectorEnv

        make = AtariVectorEnv
    return make(
        game,
        batch_size,
        # ALE samples the number of no-ops from 0 to one less than `noop_max`.
        noop_max=options.noop_max + 1,
        repeat_action_probability=float(options.repeat_action_probability),
        frameskip=options.frameskip,
        max_num_frames_per_episode=options.max_num_frames_per_episode,
        full_action_space=options.full_action_space,
        num_threads=options.num_threads or min(batch_size, len(os.sched_getaffinity(0))),
        stack_num=1,
        use_fire_reset=False,
        reward_clipping=False,
        **image,
    )
