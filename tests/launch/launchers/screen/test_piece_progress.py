"""The bar of a session's piece."""

import re
import sys
import types

import pytest

from callboard.launch.launchers.screen import piece_progress
from callboard.launch.launchers.screen.piece_progress import NotebookScreen, PieceProgress

STATUS = {
    "environment_steps": 2000,
    "learner_steps": 10,
    "max_steps": 100_000,
    "actor/steps_per_second": 100.0,
    "learner/steps_per_second": 2.0,
}


def later(steps, learner_steps):
    return {**STATUS, "environment_steps": 2000 + steps, "learner_steps": 10 + learner_steps}


@pytest.fixture
def cell(monkeypatch):
    """What a notebook's cell shows."""
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        assert "text/html" in content and raw and display_id
        return Handle()

    monkeypatch.setattr(piece_progress, "_make_screen", lambda max_steps: NotebookScreen())
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    return shown


@pytest.mark.parametrize(
    "limits, done, left",
    [
        ({"steps": 1000}, "500 of 1,000 environment steps (50%)", "10 s"),
        ({"steps": 100_000, "learner_steps": 20}, "5 of 20 learner steps (25%)", "30 s"),
        ({"steps": 100_000, "learner_steps": None, "seconds": 32.0}, "20 of 32 seconds (62%)", "12 s"),
    ],
)
def test_the_bar_is_that_of_the_nearest_limit(cell, clock, limits, done, left):
    progress = PieceProgress(limits, STATUS, clock)
    progress.show(STATUS)
    clock.now += 10.0
    progress.show(later(1, 0))  # From the first step on, the time that is left can be estimated.
    clock.now += 10.0
    progress.show(later(500, 5))
    progress.show(later(999, 9))  # Too soon to be seen.
    bar, *fields = cell[-1].splitlines()
    assert len(cell) == 3 and bar.startswith("━") and bar.endswith(f"  {done}")
    assert {"elapsed": "20 s", "time left": left}.items() <= dict(re.split(" {2,}", line) for line in fields).items()
    progress.close(later(1003, 20))
    assert "(100%)" in cell[-1] or "seconds" in limits


def test_a_pipe_gets_lines(capsys, clock):
    progress = PieceProgress({"steps": 1000}, STATUS, clock)
    progress.show(later(500, 5))
    assert re.match(r" +2,500 of 3,000 steps .*steps/s 100", capsys.readouterr().out)
