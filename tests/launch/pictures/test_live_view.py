"""The window in which episodes are shown live, on SDL's driver that shows nothing."""

import numpy as np
import pygame
import pytest

from callboard.errors import CallboardError
from callboard.launch.pictures.live_view import check_display, live_view

FRAME = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


@pytest.fixture
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_window_has_the_frame_s_size_and_shows_it(no_display):
    no_display.setenv("SDL_VIDEODRIVER", "dummy")
    check_display("--video")
    with live_view("title", 1000.0) as view:
        view.show(FRAME)
        assert pygame.display.get_caption()[0] == "title"
        np.testing.assert_array_equal(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1), FRAME)
        assert not view.closed
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        view.show(FRAME)
        assert view.closed
        view.show(FRAME)
    assert not pygame.display.get_init()


def test_without_a_display_it_is_refused(no_display):
    with pytest.raises(CallboardError, match="needs a display, and there is none here.*ssh -X.*--video"):
        check_display("--video")
    no_display.setenv("DISPLAY", ":nowhere")
    no_display.setenv("SDL_VIDEODRIVER", "x11")
    check_display("--video")
    with pytest.raises(CallboardError, match="cannot open a window"):
        with live_view("title", None) as view:
            view.show(FRAME)
