"""Records episodes as a video."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....agents.policies.acting import BatchPolicy, Episode, evaluate
from ....data import Nest, Timestep
from ....environments import BatchedEnvironment, EnvironmentWrapper, made_to_draw
from ....errors import CallboardError
from ....specs import EnvironmentSpec
from ...experiments.parts.acting_part import ActingPart
from ...experiments.policy_plan import make_plan
from ...pictures.training_pictures import made_with_pictures, need_no_display
from ...pictures.video_files import FRAMES_PER_SECOND, even, video_file
from .evaluation_players import EvaluationPlayers
from .evaluation_watch import EvaluationWatch

_OF_TRAINING = ("training_video_every", "render")


def record_video(
    experiment: ActingPart, players: EvaluationPlayers, path: pathlib.Path, episodes: int, notify: Callable[[str], None]
) -> list[Episode]:
    """Plays whole episodes and records them in one MP4 file, with one frame per timestep.

    Args:
      experiment: specifies the environment.
      players: what acts, in environments that it makes.
      path: path of the file, which appears complete or not at all.
      episodes: number of episodes, which are played one after the other.
      notify: receives a line for the user.

    Returns:
      The episodes.

    Raises:
      CallboardError: the environment cannot render.
    """
    watch = EvaluationWatch(episodes, np.inf, lambda: False, notify, experiment)
    with contextlib.closing(VideoRecorder(experiment, players)) as recorder:
        return recorder.record(path, episodes, watch.stopped, watch.episode_ended)


class VideoRecorder:
    """Plays and records episodes in an environment of its own, which is made when it is first needed.

    Args:
      experiment: specifies the environment.
      players: what acts, in environments that it makes.
      wrap: wraps that environment.
    """

    def __init__(
        self,
        experiment: ActingPart,
        players: EvaluationPlayers,
        wrap: Callable[[BatchedEnvironment], BatchedEnvironment] = lambda environment: environment,
    ):
        self._experiment = experiment
        self._players = players
        self._wrap = wrap
        self._made: tuple[BatchedEnvironment, BatchPolicy] | None = None
        self._frames_per_second = FRAMES_PER_SECOND

    def record(
        self,
        path: pathlib.Path,
        episodes: int,
        stopped: Callable[[], bool],
        episode_ended: Callable[[], None],
        see: Callable[[np.ndarray], None] = lambda frame: None,
    ) -> list[Episode]:
        """Plays whole episodes one after the other, and records them in one MP4 file.

        Args:
          path: path of the file, which appears complete or not at all.
          episodes: number of episodes.
          stopped: called before every timestep; returns True to abandon the recording.
          episode_ended: called at the end of every episode.
          see: receives every frame, uint8 `[H, W, 3]`.

        Returns:
          The episodes; none if the recording was abandoned, and then there is no file.

        Raises:
          CallboardError: the environment cannot render.
        """
        environment, policy = self._make()
        with contextlib.suppress(_Abandoned), video_file(path, self._frames_per_second) as write:

            def show(frame: np.ndarray) -> None:
                write(frame)
                see(frame)

            played = evaluate(Recorded(environment, show), policy, episodes, stopped, episode_ended)
            if not played:
                raise _Abandoned
            return played
        return []

    def close(self) -> None:
        if self._made is not None:
            self._made[0].close()

    def _make(self) -> tuple[BatchedEnvironment, BatchPolicy]:
        if self._made is None:
            environment, policy = make_drawing(self._experiment, self._players)
            self._frames_per_second = environment.frames_per_second or FRAMES_PER_SECOND
            self._made = self._wrap(environment), policy
        return self._made


class _Abandoned(Exception):
    """Ends a recording of which nothing is kept."""


def check_video(experiment: ActingPart, agents: Mapping[str, EnvironmentSpec]) -> None:
    """Refuses an experiment that shows or records an environment without pictures; renders one.

    Args:
      experiment: the experiment.
      agents: spec of each agent of the environment.

    Raises:
      CallboardError: in one line.
    """
    wanted = [name for name in ("video_every", *_OF_TRAINING) if getattr(experiment, name) is not None]
    if not wanted:
        return
    try:
        players = EvaluationPlayers(make_plan(experiment, agents, evaluation=True), {})
        for name in wanted:
            environment = (
                make_drawing(experiment, players, hidden=experiment.render is None)[0]
                if name == "video_every"
                else made_with_pictures(experiment, lambda drawing: players.make(drawing, 1)[0])
            )
            with contextlib.closing(environment):
                environment.reset()
                environment.render()
    except CallboardError as error:
        raise CallboardError(f"{name} needs pictures, so leave it out: {error}") from error


class Recorded(EnvironmentWrapper):
    """Writes a frame of another environment after every reset and step.

    Args:
      environment: the environment, see `make_drawing`.
      write: receives each frame, uint8 `[H, W, 3]`, of an even size for the video's format.
    """

    def __init__(self, environment: BatchedEnvironment, write: Callable[[np.ndarray], None]):
        super().__init__(environment)
        self._write = write

    def reset(self) -> Timestep:
        return self._record(self._environment.reset())

    def step(self, actions: Nest) -> Timestep:
        return self._record(self._environment.step(actions))

    def _record(self, timestep: Timestep) -> Timestep:
        self._write(even(self.render()))
        return timestep


def make_drawing(
    experiment: ActingPart, players: EvaluationPlayers, hidden: bool = True
) -> tuple[BatchedEnvironment, BatchPolicy]:
    """Makes one environment of an evaluation that can be rendered, and what acts in it.

    Args:
      experiment: specifies the environment.
      players: what acts, in environments that it makes.
      hidden: whether the machine may have no display.
    """
    if hidden:
        need_no_display()
    experiment = dataclasses.replace(experiment, env_processes=False)

    def make_with(options: dict[str, Any]) -> tuple[BatchedEnvironment, BatchPolicy]:
        return players.make(dataclasses.replace(experiment, env_options={**experiment.env_options, **options}), 1)

    return made_to_draw(make_with)
