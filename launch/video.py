"""Records episodes as a video."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import imageio.v3 as imageio
import numpy as np

from ..agents.acting import CompiledPolicy, Episode, evaluate
from ..atomic_files import file_draft
from ..data import Nest, Timestep
from ..environments import BatchedEnvironment
from ..errors import CallboardError
from .experiment import Experiment
from .nodes.acting_setup import make_environments
from .nodes.evaluation_watch import EvaluationWatch

_FRAMES_PER_SECOND = 30.0
"""Used if the environment specifies no frame rate."""


def record_video(
    experiment: Experiment, policy: CompiledPolicy, path: pathlib.Path, episodes: int, notify: Callable[[str], None]
) -> list[Episode]:
    """Plays whole episodes and records them in one MP4 file, with one frame per timestep.

    Args:
      experiment: specifies the environment.
      policy: compiled for one environment.
      path: path of the file, which appears complete or not at all.
      episodes: number of episodes, which are played one after the other.
      notify: receives a line for the user.

    Returns:
      The episodes.

    Raises:
      CallboardError: the environment cannot render.
    """
    # Without this, SDL, with which Gymnasium renders, requires a display.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    watch = EvaluationWatch(episodes, np.inf, lambda: False, notify)
    with contextlib.closing(_make_drawing_environment(experiment)) as environment:
        with _video_file(path, environment.frames_per_second or _FRAMES_PER_SECOND) as write:
            recorded = _Recorded(environment, write)
            return evaluate(recorded, policy, episodes, watch.stopped, watch.episode_ended)


@contextlib.contextmanager
def _video_file(path: pathlib.Path, frames_per_second: float) -> Iterator[Callable[[np.ndarray], None]]:
    """Yields a function that writes the next frame, because an episode may be too long to keep in memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_draft(path) as draft, imageio.imopen(draft, "w", plugin="pyav") as file:
        file.init_video_stream("libx264", fps=frames_per_second)
        yield file.write_frame


class _Recorded(BatchedEnvironment):
    """Writes a frame of another environment after every reset and step."""

    def __init__(self, environment: BatchedEnvironment, write: Callable[[np.ndarray], None]):
        self._environment = environment
        self._write = write

    @property
    def spec(self) -> Any:
        return self._environment.spec

    @property
    def batch_size(self) -> int:
        return self._environment.batch_size

    def reset(self) -> Timestep:
        return self._record(self._environment.reset())

    def step(self, actions: Nest) -> Timestep:
        return self._record(self._environment.step(actions))

    def render(self) -> np.ndarray:
        return self._environment.render()

    def close(self) -> None:
        self._environment.close()

    def _record(self, timestep: Timestep) -> Timestep:
        self._write(_even(self.render()))
        return timestep


def _even(frame: np.ndarray) -> np.ndarray:
    """Crops a frame to an even width and height, as H.264 requires."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]


def _make_drawing_environment(experiment: Experiment) -> BatchedEnvironment:
    # Gymnasium ids accept both options, factories of Gymnasium environments possibly the first, others neither.
    tries: list[dict[str, Any]] = [{"render_mode": "rgb_array", "vectorized": False}, {"render_mode": "rgb_array"}]
    for options in tries:
        drawing = dataclasses.replace(experiment, env_options={**experiment.env_options, **options})
        try:
            return make_environments(drawing, "evaluator", 0, 1)
        except CallboardError:
            continue
    return make_environments(experiment, "evaluator", 0, 1)
