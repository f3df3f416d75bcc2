"""When checkpoints are due, and how those that fail are retried and reported."""

import pytest

from callboard.launch.nodes.learning.checkpoint_schedule import CheckpointSchedule


class NotSaved(Exception):
    pass


class Case:
    """A schedule, a disk that may be full, and what was written and said."""

    def __init__(self, clock, seconds=30.0, **settings):
        self.full = False
        self.written = []
        self.messages = []
        self.schedule = CheckpointSchedule(seconds, 10.0, self.messages.append, clock=clock, **settings)

    def write(self, steps=0):
        def write():
            if self.full:
                raise NotSaved("No space left on device")
            self.written.append(steps)

        self.schedule.write(write, NotSaved, steps)


def test_a_checkpoint_is_due_some_time_after_the_last(clock):
    case = Case(clock)
    assert not case.schedule.is_due()
    case.schedule.restart()
    clock.now += 29.0
    assert not case.schedule.is_due()
    clock.now += 1.0
    assert case.schedule.is_due()
    case.write()
    assert not case.schedule.is_due()
    case.schedule.stop()
    clock.now += 1e6
    assert not case.schedule.is_due()


def test_a_checkpoint_is_due_after_steps_whatever_the_time(clock):
    case = Case(clock, every_steps=10)
    case.schedule.restart(25)
    clock.now += 1e6
    assert not case.schedule.is_due(29) and case.schedule.is_due(30) and case.schedule.is_due(44)
    case.write(44)
    assert not case.schedule.is_due(49) and case.schedule.is_due(50)
    assert case.schedule.has_written(44) and not case.schedule.has_written(45)


@pytest.mark.parametrize("settings, of", [({}, ""), ({"what": "replay"}, " of replay")])
def test_what_cannot_be_written_is_retried_sooner_and_reported_once(clock, settings, of):
    case = Case(clock, **settings)
    case.full = True
    for _ in range(3):
        case.write(7)
        assert not case.schedule.has_written(7) and not case.schedule.is_due(7)
        clock.now += 10.0
        assert case.schedule.is_due(7)
    problem = f"no checkpoint{of} could be written: No space left on device; the run continues, retrying every 10 s"
    assert case.messages == [problem] and not case.written
    case.full = False
    case.write(7)
    assert case.schedule.has_written(7) and case.written == [7]
    clock.now += 10.0
    assert not case.schedule.is_due(7)
    assert case.messages == [problem, f"checkpoints{of} are written again"]


def test_frequent_checkpoints_are_retried_as_frequently(clock):
    case = Case(clock, seconds=2.0)
    case.full = True
    case.write()
    clock.now += 2.0
    assert case.schedule.is_due() and "retrying every 2 s" in case.messages[0]


def test_other_errors_are_raised(clock):
    with pytest.raises(ZeroDivisionError):
        Case(clock).schedule.write(lambda: 1 / 0, NotSaved)
