"""A window that shows the frames of an environment while it is played."""

import contextlib
import os
import time
from collections.abc import Iterator

import numpy as np

from ...errors import CallboardError
from ...messages.caller_words import argument

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_FRAMES_PER_SECOND = 30.0
"""Used if the environment specifies no frame rate."""


def check_display(otherwise: str) -> None:
    """Refuses to show a window where there is no display.

    Args:
      otherwise: the option that records videos instead.

    Raises:
      CallboardError: there is none.
    """
    if not any(os.environ.get(name) for name in _DISPLAYS):
        raise CallboardError(
            f"{argument('render', 'human')} needs a display, and there is none here: DISPLAY and WAYLAND_DISPLAY are "
            f"not set; connect with `ssh -X`, or record with {otherwise}"
        )


class LiveView:
    """A window, which opens with the first frame and has its size.

    Args:
      title: title of the window.
      frames_per_second: how fast frames are shown; None for 30.
    """

    def __init__(self, title: str, frames_per_second: float | None):
        import pygame

        self._pygame = pygame
        self._title = title
        self._frames_per_second = frames_per_second or _FRAMES_PER_SECOND
        self._due = 0.0
        self._window: pygame.Surface | None = None
        self.closed = False
        """Whether the user has closed the window."""

    @property
    def is_due(self) -> bool:
        """Whether the time of the next frame has come."""
        return time.monotonic() >= self._due

    def show(self, frame: np.ndarray) -> None:
        """Shows a frame, uint8 `[H, W, 3]`, when it is due.

        Raises:
          CallboardError: there is no window to show it in.
        """
        pygame = self._pygame
        if self.closed:
            return
        if self._window is None:
            try:
                # Otherwise SDL takes the place of Python's and the launcher's handlers.
                os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
                pygame.display.init()
                self._window = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
            except pygame.error as error:
                raise CallboardError(
                    f"{argument('render', 'human')} cannot open a window ({error}); check the display, or record videos"
                ) from error
            pygame.display.set_caption(self._title)
        # Pygame's arrays have the horizontal axis first.
        pygame.surfarray.blit_array(self._window, frame.swapaxes(0, 1))
        pygame.display.flip()
        self.closed = any(event.type == pygame.QUIT for event in pygame.event.get())
        now = time.monotonic()
        time.sleep(max(0.0, self._due - now))
        self._due = max(self._due, now) + 1 / self._frames_per_second

    def close(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            self._pygame.display.quit()


@contextlib.contextmanager
def live_view(title: str, frames_per_second: float | None) -> Iterator[LiveView]:
    """Yields a window, which is closed at the end."""
    view = LiveView(title, frames_per_second)
    try:
        yield view
    finally:
        view.close()
