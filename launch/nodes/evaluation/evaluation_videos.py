"""Videos of the policies that the evaluator evaluates, in the run directory and in TensorBoard."""

import logging
from collections.abc import Callable

from ....environments import BatchedEnvironment
from ....errors import anything_raised, message_of
from ...experiments.parts.acting_part import ActingPart
from ...pictures.video_files import BoardVideos, ThinnedFrames, remove_old
from ...run_directory.layout import RunDirectory
from .evaluation_players import EvaluationPlayers
from .evaluation_watch import EvaluationWatch
from .video import VideoRecorder

_KIND = "evaluation"


class EvaluationVideos:
    """Records one episode after every `video_every`-th evaluation.

    The episode is played in an environment of its own.  What TensorBoard shows is encoded in a background thread.

    Args:
      experiment: specifies the environment and how often an episode is recorded.
      players: what acts, in environments that it makes.
      directory: the run directory.
      notify: receives a line for the user: once if videos begin to fail.
      wrap: wraps the environment, to mark its steps.
    """

    def __init__(
        self,
        experiment: ActingPart,
        players: EvaluationPlayers,
        directory: RunDirectory,
        notify: Callable[[str], None],
        wrap: Callable[[BatchedEnvironment], BatchedEnvironment],
    ):
        self._experiment = experiment
        self._every = experiment.video_every
        self._timeout = experiment.evaluation_timeout
        self._directory = directory
        self._notify = notify
        self._recorder = VideoRecorder(experiment, players, wrap)
        self._evaluations = 0
        self._failing = False
        self._board = BoardVideos(directory, _KIND, "videos")

    def after_evaluation(self, environment_steps: int, stopped: Callable[[], bool]) -> None:
        """Records an episode if it is due.

        Args:
          environment_steps: environment steps of the run when the evaluation began.
          stopped: returns True to abandon the episode, of which then nothing is kept.
        """
        self._evaluations += 1
        if self._every is None or self._evaluations % self._every:
            return
        frames = ThinnedFrames()
        watch = EvaluationWatch(1, self._timeout, stopped, self._notify, self._experiment)
        path = self._directory.videos / f"{_KIND}-{environment_steps:012d}.mp4"
        try:
            self._recorder.record(path, 1, watch.stopped, watch.episode_ended, frames.add)
            remove_old(self._directory.videos, _KIND)
            self._failing = False
        except anything_raised() as error:  # An environment may raise anything while it renders.
            logging.warning("no video was recorded", exc_info=error)
            if not self._failing:
                self._notify(f"no video was recorded: {' '.join(message_of(error).split())}; training continues")
            self._failing = True
            return
        if path.exists():
            self._board.write(frames.frames, environment_steps)

    def close(self) -> None:
        self._board.wait()
        self._recorder.close()
