"""Atari games by Gymnasium's ids (`ALE/Breakout-v5`), preprocessed as is usual and not stacked."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from dm_env import specs
from gymnasium.vector import VectorEnv

from ..data import CallboardError, Nest, Timestep
from ..specs import EnvironmentSpec
from .batched import BatchedEnvironment, check_seeds, discrete_actions, first_timestep, picture
from .options import check_range, read_options
from .user_errors import needs_package, unknown_environment

_NAMESPACE = "ALE/"
_SIZE = 84
_SCREEN = {"img_height": 210, "img_width": 160}
_SEEDS = 2**31
_FRAMES_PER_SECOND = 60.0
"""Of the console."""


@dataclasses.dataclass(frozen=True)
class AtariOptions:
    """How games are played; the defaults are those of the v5 ids (Machado et al. 2018, table 5).

    Attributes:
        repeat_action_probability: with which the emulator repeats its last action instead, at each frame ("sticky
            actions").  0 where scores are to be compared with those of Mnih et al. 2015.
        noop_max: every episode begins with 0 to so many frames in which nothing is done (Mnih et al. 2015).
        life_loss: whether the discount is 0 where a life is lost; see `AtariBatch`.  For training only.
        frameskip: frames for which an action is held; the observation is the maximum of the last two of them.
        max_num_frames_per_episode: frames after which an episode is truncated; half an hour of play.
        full_action_space: all 18 actions instead of those that do something in the game.
        num_threads: that step the games; 0 for as many as the process has cores, if there are so many games.
        render_mode: 'rgb_array' for pictures of game 0 in color, which is then played twice.
    """

    repeat_action_probability: float = 0.25
    noop_max: int = 30
    life_loss: bool = False
    frameskip: int = 4
    max_num_frames_per_episode: int = 108_000
    full_action_space: bool = False
    num_threads: int = 0
    render_mode: Literal["rgb_array"] | None = None

    def __post_init__(self) -> None:
        check_range(self, "repeat_action_probability", 0, 1)
        check_range(self, "noop_max", 0, 100_000)
        check_range(self, "frameskip", 1, 1000)
        check_range(self, "max_num_frames_per_episode", 1, 2**30)
        check_range(self, "num_threads", 0, 1024)


def make_atari(id: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """A batch of the Atari game `id`.

    Args:
        id: `ALE/<Game>-v5`.
        batch_size: the number of games.
        seeds: one to each game.
        options: the fields of `AtariOptions`.

    Raises:
        CallboardError: an unknown game or option, or ale-py is missing.
    """
    game = check_atari(id, options)
    check_seeds(batch_size, seeds)
    return AtariBatch(id, game, seeds, read_options(id, options, AtariOptions))


def atari_ids() -> list[str]:
    """The ids of all games, such as `ALE/Breakout-v5`; none where ale-py is missing."""
    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401  Registers its ids with Gymnasium.
    return [id for id in gymnasium.registry if id.startswith(_NAMESPACE)]


def check_atari(id: str, options: Mapping[str, Any]) -> str:
    """The game of that id as ALE calls it; a wrong id and wrong options are refused.  Nothing is made."""
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
    """B Atari games, stepped by the threads of ALE's own vector environment.

    Observations are uint8 `[84, 84, 1]`, so that networks see an image of rank 3: gray, the maximum of the last two
    frames, resized by area (Mnih et al. 2015).  There is no stack of frames, which replay and policy make, and rewards
    are the true score.  The end of a game is a termination, the limit of frames is not.  What a game does follows its
    own seed alone.

    With `life_loss`, the loss of a life that is not the last one is a timestep with `first` and a discount of 0, as
    that of a library that resets in the same step: what was done before it is learned as if the game had ended there,
    and the next "episode" begins with the same observation, in the same game.  No frame is played twice, and no action
    is ignored.  Episodes are lives then, and so are their returns: evaluate without it.

    The observation that ends a game, or meets the limit of frames, leaves out the frame it ends with and still holds
    what the observation before it showed: ALE stops there as Gymnasium's preprocessing does.
    """

    def __init__(self, id: str, game: str, seeds: Sequence[int], options: AtariOptions) -> None:
        """Starts B games.

        Args:
            id: how the game is called in messages.
            game: how ALE calls it, `breakout`.
            seeds: one to each game.
            options: how they are played.
        """
        self._id = id
        self._life_loss = options.life_loss
        self._frameskip = options.frameskip
        self._seeds: np.ndarray | None = np.array([int(seed) % _SEEDS for seed in seeds], np.int64)
        self._environment = _make_vector(game, len(seeds), options, grayscale=True, img_height=_SIZE, img_width=_SIZE)
        # Under the same seed and actions the same game, in color and of the size of the screen.
        self._painter = None
        if options.render_mode is not None:
            self._painter = _make_vector(game, 1, options, grayscale=False, **_SCREEN)
        self._painting: np.ndarray | None = None
        self._actions = int(self._environment.single_action_space.n)  # type: ignore[attr-defined]
        self._over = np.zeros(len(seeds), np.bool_)
        self._lives = np.zeros(len(seeds), np.int32)
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            observation=specs.BoundedArray((_SIZE, _SIZE, 1), np.uint8, 0, 255),
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
        return first_timestep(self._image(observation), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        checked = discrete_actions(actions, self.batch_size, self._actions)
        # A game that is over ignores its action, begins anew, and reports neither reward nor end.
        observation, reward, terminated, truncated, info = self._environment.step(checked)
        if self._painter is not None:
            self._painting = self._painter.step(checked[:1])[0][0, 0]
        last = terminated | truncated
        first, self._over = self._over, last
        if self._life_loss:
            # Some games show no lives left for a while before they are over: that is their end and not a loss more.
            lost = (info["lives"] < self._lives) & (info["lives"] > 0) & ~first & ~terminated
            terminated = terminated | lost
            first = first | (lost & ~last)
        self._lives = info["lives"]
        return Timestep(
            observation=self._image(observation),
            reward=reward.astype(np.float32),
            discount=np.where(terminated, np.float32(0), np.float32(1)),
            first=first,
            last=last.copy(),
        )

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
                    del environment.ale  # type: ignore[attr-defined]  # Its threads end with it.

    def _image(self, observation: np.ndarray) -> np.ndarray:
        # ALE gives a stack [B, 1, 84, 84] of one frame, in an array that is ours.
        return observation.reshape(self.batch_size, _SIZE, _SIZE, 1)


def _make_vector(game: str, batch_size: int, options: AtariOptions, **image: Any) -> VectorEnv:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game,
        batch_size,
        # ALE draws from 0 to one less than it is given.
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
