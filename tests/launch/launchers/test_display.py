"""What stands on the screen is what was said."""

import io

import pytest
from rich.console import Console

from callboard.launch.launchers.display import LineMonitor, LiveMonitor
from callboard.launch.launchers.run_outcome import OutputClosed

TEXT = "actor/0: OSError: cannot open [agent] camera [/dev/video0] :smile:"


def test_brackets_are_no_markup(capsys):
    LineMonitor(100).say(TEXT)
    assert capsys.readouterr().out == f"{TEXT}\n"
    screen = io.StringIO()
    monitor = LiveMonitor(Console(file=screen, force_terminal=True, width=200), 100)
    monitor.say(TEXT)
    monitor.close()
    assert TEXT in screen.getvalue()


class Closed(io.StringIO):
    """A terminal that has gone away."""

    def write(self, text):
        raise OSError(5, "Input/output error")


def test_output_that_is_closed_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(OutputClosed, match=r"the output was closed \(Input/output error\): keep it open"):
        LineMonitor(100).say(TEXT)
    screen = io.StringIO()
    monitor = LiveMonitor(Console(file=screen, force_terminal=True), 100)
    monitor._live.console.file = Closed()
    with pytest.raises(OutputClosed, match="the output was closed"):
        monitor.say(TEXT)
    monitor.close()
