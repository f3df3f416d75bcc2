"""Waiting with a deadline, with a clock that moves only while the test waits."""

import math

import pytest

from callboard.runtime.deadlines import Deadline, retry, wait_until


def test_a_deadline_passes_and_can_be_moved(clock):
    deadline = Deadline(2.0, clock)
    assert deadline.left == 2.0 and not deadline.has_passed
    clock.now += 2.5
    assert deadline.left == 0.0 and deadline.has_passed
    deadline.restart()
    assert deadline.left == 2.0
    deadline.restart(5.0)
    assert deadline.left == 5.0
    assert Deadline(math.inf, clock).left == math.inf


@pytest.mark.parametrize("holds_after, holds, ends_after", [(0.0, True, 0.0), (1.0, True, 1.2), (9.0, False, 2.0)])
def test_waiting_ends_with_the_condition_or_at_the_deadline(clock, holds_after, holds, ends_after):
    found = wait_until(lambda: clock.now >= 100 + holds_after, 2.0, 0.4, clock.sleep, clock)
    assert found is holds and clock.now == pytest.approx(100 + ends_after)


@pytest.mark.parametrize("failures, ends_after", [(0, 0.0), (2, 0.8), (5, 2.0)])
def test_a_call_is_repeated_until_it_succeeds(clock, failures, ends_after):
    errors = [OSError("busy")] * failures

    def call():
        if errors:
            raise errors.pop()
        return "done"

    assert retry(call, OSError, 2.0, 0.4, clock.sleep, clock) == "done"
    assert clock.now == pytest.approx(100 + ends_after)


def test_the_last_error_is_raised_at_the_deadline(clock):
    def call():
        raise OSError(f"busy at {clock.now:.1f}")

    with pytest.raises(OSError, match=r"busy at 102\.0"):
        retry(call, OSError, 2.0, 0.4, clock.sleep, clock)
    with pytest.raises(OSError, match="busy at"):
        retry(call, ValueError, 2.0, 0.4, clock.sleep, clock)
