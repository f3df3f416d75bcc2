"""Videos of the policies that the evaluator evaluates, in the run directory and in TensorBoard."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import imageio.v3 as imageio
import numpy as np
import tensorflow as tf

from ....environments import BatchedEnvironment
from ...experiment import Experiment
from ...run_directory.layout import RunDirectory
from ...trained.video import EpisodeRecorder
from .evaluation_setup import EvaluationSetup
from .evaluation_watch import EvaluationWatch

_KEPT = 100
"""Videos that are kept; the oldest ones are removed."""
_GIF_FRAMES = 100
_GIF_SIZE = 240
"""Largest width and height of the pictures in TensorBoard."""
_GIF_SECONDS = 0.05
_TAG = "videos/evaluation"


class EvaluationVideos:
    """Records one episode after every `video_every`-th evaluation.

    The episode is played in an environment of its own.  What TensorBoard shows is encoded in a background thread.

    Args:
      experiment: specifies the environment and how often an episode is recorded.
      setup: the environments, and what acts in them.
      directory: the run directory.
      notify: receives a line for the user: once if videos begin to fail.
      wrap: wraps the environment, to mark its steps.
    """

    def __init__(
        self,
        experiment: Experiment,
        setup: EvaluationSetup,
        directory: RunDirectory,
        notify: Callable[[str], None],
        wrap: Callable[[BatchedEnvironment], BatchedEnvironment],
    ):
        self._experiment = experiment
        self._every = experiment.video_every
        self._timeout = experiment.evaluation_timeout
        self._directory = directory
        self._notify = notify
        self._recorder = EpisodeRecorder(experiment, setup, wrap)
        self._evaluations = 0
        self._failing = False
        self._encoder: threading.Thread | None = None

    def after_evaluation(self, environment_steps: int, stopped: Callable[[], bool]) -> None:
        """Records an episode if it is due.

        Args:
          environment_steps: environment steps of the run when the evaluation began.
          stopped: returns True to abandon the episode, of which then nothing is kept.
        """
        self._evaluations += 1
        if self._every is None or self._evaluations % self._every:
            return
        frames = ThinnedFrames(_GIF_FRAMES)
        watch = EvaluationWatch(1, self._timeout, stopped, self._notify, self._experiment)
        path = self._directory.videos / f"evaluation-{environment_steps:012d}.mp4"
        try:
            self._recorder.record(path, 1, watch.stopped, watch.episode_ended, frames.add)
            self._remove_old()
            self._failing = False
        except Exception as error:  # An environment may raise anything while it renders.
            logging.warning("no video was recorded", exc_info=error)
            if not self._failing:
                self._notify(f"no video was recorded: {' '.join(str(error).split())}; training continues")
            self._failing = True
            return
        if path.exists():
            self.wait()
            self._encoder = threading.Thread(
                target=self._write_gif, args=(frames.frames, environment_steps), name="video", daemon=True
            )
            self._encoder.start()

    def wait(self) -> None:
        """Waits until TensorBoard has the last video."""
        if self._encoder is not None:
            self._encoder.join()

    def close(self) -> None:
        self.wait()
        self._recorder.close()

    def _remove_old(self) -> None:
        for old in sorted(self._directory.videos.glob("evaluation-*.mp4"))[:-_KEPT]:
            old.unlink(missing_ok=True)

    def _write_gif(self, frames: list[np.ndarray], step: int) -> None:
        try:
            # A directory of its own: TensorBoard reads only the newest file of a directory that it follows.
            write_gif(str(self._directory.tensorboard / "videos"), frames, step)
        except Exception as error:
            logging.warning("the video was not written for TensorBoard", exc_info=error)


class ThinnedFrames:
    """Keeps evenly spaced frames of an episode of any length.

    Args:
      limit: most frames that are kept.
    """

    def __init__(self, limit: int):
        self.frames: list[np.ndarray] = []
        self._limit = limit
        self._every = 1
        self._count = 0

    def add(self, frame: np.ndarray) -> None:
        """Takes the next frame, `[H, W, 3]`."""
        if self._count % self._every == 0:
            if len(self.frames) == self._limit:
                self.frames = self.frames[::2]
                self._every *= 2
            if self._count % self._every == 0:
                self.frames.append(_smaller(frame))
        self._count += 1


def write_gif(directory: str, frames: list[np.ndarray], step: int) -> None:
    """Writes frames as an animated picture for TensorBoard.

    Args:
      directory: where TensorBoard looks.
      frames: uint8 `[H, W, 3]`, at least one.
      step: environment steps of the run.
    """
    from tensorboard.plugins.image import metadata as image_metadata

    gif: Any = imageio.imwrite(
        "<bytes>", np.stack(frames), extension=".gif", plugin="pillow", duration=1000 * _GIF_SECONDS, loop=0
    )
    height, width = frames[0].shape[:2]
    metadata = image_metadata.create_summary_metadata(display_name=None, description="", converted_to_tensor=True)
    picture = tf.constant([str(width).encode(), str(height).encode(), bytes(gif)])
    writer = tf.summary.create_file_writer(directory)
    with writer.as_default(step=step):
        tf.summary.write(_TAG, picture, metadata=metadata)
    writer.close()


def _smaller(frame: np.ndarray) -> np.ndarray:
    """Returns a copy of a frame that is not larger than TensorBoard's pictures."""
    stride = -(-max(frame.shape[:2]) // _GIF_SIZE)
    return np.array(frame[::stride, ::stride])
