"""How a run ends: which of several reasons counts, and what the user reads."""

import errno
import signal

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.run_outcome import GuardedMonitor, Outcome, OutputClosed, error_text


class Screen:
    """Shows what it is given until its output is closed."""

    def __init__(self):
        self.shown, self.error = [], None

    def notify(self, text):
        if self.error:
            raise self.error
        self.shown.append(text)

    status = notify


def test_the_first_reason_to_end_counts():
    outcome = Outcome()
    assert not outcome.ended and outcome.exit_code == 0
    outcome.reached_limit("enough")
    outcome.interrupted(signal.SIGINT)
    outcome.reached_limit("more than enough")
    assert outcome == Outcome(reason="enough") and outcome.ended


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_gives_the_exit_code_of_a_shell(number, code):
    outcome = Outcome()
    outcome.interrupted(number)
    assert (outcome.reason, outcome.exit_code) == (f"stopped by {number.name}", code)


def test_the_first_failure_counts_even_while_the_run_ends():
    outcome = Outcome()
    outcome.interrupted(signal.SIGTERM)
    outcome.failed("learner/0", "no space")
    outcome.failed("actor/0", "its learner is gone")
    assert outcome == Outcome("learner/0 failed", 1, "learner/0", "no space")


def test_only_a_failure_on_another_host_replaces_a_reason():
    failed = Outcome("actor/0 failed", 1, "actor/0", "no camera")
    outcome = Outcome(score=5.0)
    outcome.adopt(Outcome("enough"))
    outcome.adopt(Outcome("stopped by SIGINT", 130))
    assert outcome == Outcome("enough", score=5.0)
    outcome.adopt(failed)
    outcome.adopt(Outcome("replay/0 failed", 1, "replay/0", "no space"))
    assert outcome == Outcome("actor/0 failed", 1, "actor/0", "no camera", score=5.0)


@pytest.mark.parametrize("error", [OutputClosed(OSError(errno.EPIPE, "Broken pipe")), SystemExit(0)])
def test_a_monitor_that_raises_is_not_called_again(error):
    screen, errors = Screen(), []
    monitor = GuardedMonitor(screen, errors.append)
    monitor.notify("a line")
    monitor.status({"environment_steps": 1})
    screen.error = error
    monitor.status({})
    screen.error = None
    monitor.notify("another")
    assert screen.shown == ["a line", {"environment_steps": 1}] and errors == [error]


def test_a_second_signal_passes_through_a_guarded_monitor():
    screen, errors = Screen(), []
    screen.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        GuardedMonitor(screen, errors.append).notify("a line")
    assert errors == []


@pytest.mark.parametrize(
    "error, text",
    [
        (CallboardError("unknown torso 'ml'"), "unknown torso 'ml'"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit of open files"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Address already in use: there are not enough free port"),
        (OutputClosed(OSError(errno.EPIPE, "Broken pipe")), "the output was closed (Broken pipe): keep it open"),
    ],
)
def test_what_the_user_can_fix_is_one_line(error, text):
    assert error_text(error).startswith(text) and "\n" not in error_text(error)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("Resource temporarily unavailable"), RuntimeError("can't start new thread")],
)
def test_an_error_for_want_of_memory_or_threads_names_the_limits(error):
    assert error_text(error).splitlines()[-1].startswith("This process got no more memory or threads: look at `ulimit")


def test_other_errors_keep_their_traceback():
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        text = error_text(error)
    assert text.startswith("Traceback") and text.endswith("ValueError: two\nlines")
