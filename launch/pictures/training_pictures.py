"""Pictures of training: the first environment of a run in a window, and videos of its episodes."""

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...data import Nest, Timestep
from ...environments import BatchedEnvironment, EnvironmentWrapper, made_to_draw
from ...errors import anything_raised, one_line
from ...runtime.deadlines import Deadline
from ..experiments.parts.acting_part import ActingPart
from ..run_directory.layout import RunDirectory
from .live_view import LiveView
from .video_files import FRAMES_PER_SECOND, BoardVideos, ThinnedFrames, even, remove_old, video_file

Made = TypeVar("Made")

_OTHER_SHARE = 9.0
"""Time of an actor for everything but its window, in units of that for the window."""
_MOST_FRAMES = 20_000
"""Frames of a video: an episode may never end."""
_KIND = "training"


class Viewer:
    """Takes pictures of one environment, and shows or writes them."""

    @property
    def wants_picture(self) -> bool:
        """Whether `see` is to be called now; pictures cost time."""
        return True

    def begin(self) -> None:
        """An episode begins with the next picture."""

    def see(self, frame: np.ndarray, seconds: float) -> None:
        """Takes a picture, uint8 `[H, W, 3]`, and the seconds that it took."""

    def end(self) -> None:
        """The episode has ended with the last picture."""

    def close(self) -> None:
        """No picture follows."""


class PicturedEnvironment(EnvironmentWrapper):
    """Forwards all calls to another environment, and shows pictures of its first one to viewers.

    A viewer that raises is reported once, and left; training continues.

    Args:
      environment: the other environment.
      viewers: what is done with the pictures.
      notify: receives a line for the user.
    """

    def __init__(self, environment: BatchedEnvironment, viewers: Sequence[Viewer], notify: Callable[[str], None]):
        super().__init__(environment)
        self._viewers = list(viewers)
        self._notify = notify
        self._was_last = False

    def reset(self) -> Timestep:
        timestep = super().reset()
        self._was_last = False
        self._for_each(lambda viewer: viewer.begin())
        self._show()
        return timestep

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)
        if self._viewers:
            first, last = bool(timestep.first[0]), bool(timestep.last[0])
            if first:
                if not self._was_last:
                    # The library reset in the same step: there is no picture of the end.
                    self._for_each(lambda viewer: viewer.end())
                self._for_each(lambda viewer: viewer.begin())
            self._show()
            if last:
                self._for_each(lambda viewer: viewer.end())
            self._was_last = last
        return timestep

    def close(self) -> None:
        self._for_each(lambda viewer: viewer.close())
        super().close()

    def _show(self) -> None:
        if any(viewer.wants_picture for viewer in self._viewers):
            begun = time.monotonic()
            try:
                frame = self.render()
            except anything_raised() as error:  # An environment may raise anything while it renders.
                self._for_each(lambda viewer: viewer.close())
                self._viewers = []
                self._report(error)
                return
            seconds = time.monotonic() - begun
            self._for_each(lambda viewer: viewer.see(frame, seconds) if viewer.wants_picture else None)

    def _for_each(self, call: Callable[[Viewer], object]) -> None:
        for viewer in list(self._viewers):
            try:
                call(viewer)
            except Exception as error:
                self._viewers.remove(viewer)
                with contextlib.suppress(Exception):
                    viewer.close()
                self._report(error)

    def _report(self, error: BaseException) -> None:
        logging.warning("no more pictures of training", exc_info=error)
        self._notify(f"no more pictures of training: {one_line(error)}; training continues")


class TrainingWindow(Viewer):
    """A window with the newest picture, as often as the frame rate and a tenth of the actor's time allow.

    Args:
      title: title of the window.
      frames_per_second: most pictures a second; None for 30.
      notify: receives a line for the user once the window is closed.
    """

    def __init__(self, title: str, frames_per_second: float | None, notify: Callable[[str], None]):
        self._view = LiveView(title, frames_per_second)
        self._notify = notify
        self._pause = Deadline(0.0)

    @property
    def wants_picture(self) -> bool:
        return not self._view.closed and self._view.is_due and self._pause.has_passed

    def see(self, frame: np.ndarray, seconds: float) -> None:
        begun = time.monotonic()
        self._view.show(frame)
        # Some vector environments render all of their environments for one picture.
        self._pause.restart(_OTHER_SHARE * (seconds + time.monotonic() - begun))
        if self._view.closed:
            self._view.close()
            self._notify("the window is closed; training continues")

    def close(self) -> None:
        self._view.close()


class TrainingVideos(Viewer):
    """Records the first and then every `every`-th episode, in the run directory and in TensorBoard.

    What TensorBoard shows is encoded in a background thread.

    Args:
      every: number of episodes of which one is recorded.
      directory: the run directory.
      frames_per_second: frame rate of the videos; None for 30.
      steps: returns the environment steps of the run.
    """

    def __init__(self, every: int, directory: RunDirectory, frames_per_second: float | None, steps: Callable[[], int]):
        self._every = every
        self._directory = directory
        self._frames_per_second = frames_per_second or FRAMES_PER_SECOND
        self._steps = steps
        self._episodes = 0
        self._number = -1
        self._frames = ThinnedFrames()
        self._count = 0
        self._file: contextlib.ExitStack | None = None
        self._write: Callable[[np.ndarray], None] = lambda frame: None
        self._board = BoardVideos(directory, _KIND, "training_videos")

    @property
    def wants_picture(self) -> bool:
        return self._file is not None

    def begin(self) -> None:
        is_due = self._episodes % self._every == 0
        self._episodes += 1
        if not is_due:
            return
        self.end()
        # Two episodes may begin before the run has counted a step.
        self._number = max(self._steps(), self._number + 1)
        path = self._directory.videos / f"{_KIND}-{self._number:012d}.mp4"
        file = contextlib.ExitStack()
        self._write = file.enter_context(video_file(path, self._frames_per_second))
        self._file, self._frames, self._count = file, ThinnedFrames(), 0

    def see(self, frame: np.ndarray, seconds: float) -> None:
        self._write(even(frame))
        self._frames.add(frame)
        self._count += 1
        if self._count == _MOST_FRAMES:
            self.end()

    def end(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        remove_old(self._directory.videos, _KIND)
        self._board.write(self._frames.frames, self._number)

    def close(self) -> None:
        """Leaves nothing of an episode that has not ended."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(_Unfinished), file:
                raise _Unfinished
        self._board.wait()


class _Unfinished(Exception):
    """Ends a recording of which nothing is kept."""


def with_pictures(
    environment: BatchedEnvironment,
    experiment: ActingPart,
    directory: RunDirectory,
    steps: Callable[[], int],
    notify: Callable[[str], None],
) -> BatchedEnvironment:
    """Returns the environments of a run's first actor, with the pictures that the experiment wants of them.

    Args:
      environment: the environments, which can render.
      experiment: the experiment.
      directory: the run directory.
      steps: returns the environment steps of the run.
      notify: receives a line for the user.
    """
    viewers: list[Viewer] = []
    rate = environment.frames_per_second
    if experiment.render is not None:
        viewers.append(TrainingWindow(f"{experiment.env} - Callboard", rate, notify))
    if experiment.training_video_every is not None:
        viewers.append(TrainingVideos(experiment.training_video_every, directory, rate, steps))
    return PicturedEnvironment(environment, viewers, notify) if viewers else environment


def made_with_pictures(experiment: ActingPart, make: Callable[[ActingPart], Made]) -> Made:
    """Makes the environments of an actor so that the first can be rendered, where that takes an option.

    They step as others do: a vector form remains one.

    Args:
      experiment: specifies the environments.
      make: makes them.
    """
    if experiment.render is None:
        need_no_display()

    def make_with(options: dict[str, Any]) -> Made:
        return make(dataclasses.replace(experiment, env_options={**experiment.env_options, **options}))

    return made_to_draw(make_with, alone=False)


def need_no_display() -> None:
    """Without this, SDL, with which Gymnasium renders, requires a display."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
