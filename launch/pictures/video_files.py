"""Frames of an episode as an MP4 file, and as an animated picture for TensorBoard."""

import contextlib
import logging
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import imageio.v3 as imageio
import numpy as np

from ...errors import writing
from ...files.atomic_files import check_writable, file_draft
from ..run_directory.layout import RunDirectory

FRAMES_PER_SECOND = 30.0
"""Used if the environment specifies no frame rate."""
KEPT_VIDEOS = 100
"""Videos of a kind that are kept in a run directory; the oldest ones are removed."""
GIF_FRAMES = 100
_GIF_SIZE = 240
"""Largest width and height of the pictures in TensorBoard."""
_GIF_SECONDS = 0.05


@contextlib.contextmanager
def video_file(path: pathlib.Path, frames_per_second: float) -> Iterator[Callable[[np.ndarray], None]]:
    """Yields a function that writes the next frame, because an episode may be too long to keep in memory.

    Frames are uint8 `[H, W, 3]`, of an even size, see `even`.  The file appears complete at the end, or not at all if
    there is an exception.

    Raises:
      CallboardError: it cannot be written.
    """
    with contextlib.ExitStack() as parts:
        with writing(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            file = parts.enter_context(imageio.imopen(parts.enter_context(file_draft(path)), "w", plugin="pyav"))
            file.init_video_stream("libx264", fps=frames_per_second)

        def write(frame: np.ndarray) -> None:
            with writing(path):
                file.write_frame(frame)

        yield write
        with writing(path):
            parts.close()


def check_video_file(path: pathlib.Path) -> None:
    """Raises `CallboardError` if `video_file` could not write a file."""
    with writing(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        check_writable(path)


def even(frame: np.ndarray) -> np.ndarray:
    """Crops a frame to an even width and height, as H.264 requires."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]


def remove_old(directory: pathlib.Path, kind: str) -> None:
    """Removes the oldest videos `KIND-*.mp4` of a directory."""
    for old in sorted(directory.glob(f"{kind}-*.mp4"))[:-KEPT_VIDEOS]:
        old.unlink(missing_ok=True)


class ThinnedFrames:
    """Keeps evenly spaced frames of an episode of any length, made smaller.

    Args:
      limit: most frames that are kept.
    """

    def __init__(self, limit: int = GIF_FRAMES):
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


class BoardVideos:
    """Writes videos of one kind for TensorBoard in a background thread, one at a time.

    Args:
      directory: the run directory.
      kind: what they show, such as `training`.
      folder: name of their folder in TensorBoard's, one of its own.
    """

    def __init__(self, directory: RunDirectory, kind: str, folder: str):
        self._directory = directory
        self._tag = f"videos/{kind}"
        self._folder = directory.tensorboard / folder
        self._encoder: threading.Thread | None = None

    def write(self, frames: list[np.ndarray], step: int) -> None:
        """Begins to write a video, see `write_gif`, once the last one is written."""
        self.wait()
        self._encoder = threading.Thread(target=self._write, args=(frames, step), name="video", daemon=True)
        self._encoder.start()

    def wait(self) -> None:
        """Waits until TensorBoard has the last video."""
        if self._encoder is not None:
            self._encoder.join()

    def _write(self, frames: list[np.ndarray], step: int) -> None:
        try:
            self._directory.make(self._folder)
            write_gif(str(self._folder), frames, step, self._tag)
        except Exception as error:
            logging.warning("the video was not written for TensorBoard", exc_info=error)


def write_gif(directory: str, frames: list[np.ndarray], step: int, tag: str) -> None:
    """Writes frames as an animated picture for TensorBoard.

    Args:
      directory: where TensorBoard looks: one of its own, of which TensorBoard reads only the newest file.
      frames: uint8 `[H, W, 3]`, at least one.
      step: environment steps of the run.
      tag: name of the picture.
    """
    import tensorflow as tf
    from tensorboard.plugins.image import metadata as image_metadata

    gif: Any = imageio.imwrite(
        "<bytes>", np.stack(frames), extension=".gif", plugin="pillow", duration=1000 * _GIF_SECONDS, loop=0
    )
    height, width = frames[0].shape[:2]
    metadata = image_metadata.create_summary_metadata(display_name=None, description="", converted_to_tensor=True)
    picture = tf.constant([str(width).encode(), str(height).encode(), bytes(gif)])
    writer = tf.summary.create_file_writer(directory)
    with writer.as_default(step=step):
        tf.summary.write(tag, picture, metadata=metadata)
    writer.close()


def _smaller(frame: np.ndarray) -> np.ndarray:
    """Returns a copy of a frame that is not larger than TensorBoard's pictures."""
    stride = -(-max(frame.shape[:2]) // _GIF_SIZE)
    return np.array(frame[::stride, ::stride])
