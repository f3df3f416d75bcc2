"""Signals that end a run: handlers within a context, early signals, and a thread that passes them on."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from callboard.launch.processes.stop_signals import STOP_SIGNALS, Stopped, ThreadSignals, stop_signals


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_within_the_context_a_signal_calls_and_afterwards_the_handler_is_as_before(number):
    before = signal.getsignal(number)
    received = []
    with stop_signals(received.append):
        signal.raise_signal(number)
        with stop_signals(lambda inner: received.append(-inner)):
            signal.raise_signal(number)
        signal.raise_signal(number)
    assert received == [number, -number, number]
    assert signal.getsignal(number) == before


def test_handlers_are_restored_after_an_error():
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with pytest.raises(ZeroDivisionError), stop_signals(print):
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        received = []
        with stop_signals(received.append):
            signal.raise_signal(signal.SIGHUP)
        assert received == [] and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_is_changed():
    before = signal.getsignal(signal.SIGTERM)
    within = []

    def enter():
        with stop_signals(print):
            within.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert within == [before]


def test_signals_sent_to_a_thread_call_its_newest_handler_and_those_that_come_later():
    signals, received, steps = ThreadSignals(), [], [threading.Event() for _ in range(3)]

    def enter():
        with signals.delivered(), stop_signals(lambda number: received.append("outer")):
            with stop_signals(lambda number: received.append("inner")):
                steps[0].set()
                steps[1].wait(20)
            with stop_signals(lambda number: received.append("later")):
                pass
        with stop_signals(lambda number: received.append("after")):
            steps[2].set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert steps[0].wait(20)
    signals.send(signal.SIGINT)
    assert received == ["inner"]
    steps[1].set()
    thread.join()
    assert steps[2].is_set() and received == ["inner", "later"]
    signals.send(signal.SIGINT)
    assert received == ["inner", "later"]


def test_the_exit_code_is_that_of_shells():
    assert Stopped(signal.SIGINT).exit_code == 130
    assert Stopped(signal.SIGTERM).exit_code == 143


# Both change the whole process, so it is one of its own.
CODE = """
import queue, signal
from callboard.launch.processes.stop_signals import Stopped, pass_on_signals, raise_at_signals, stop_signals
raise_at_signals()
try:
    signal.raise_signal(signal.SIGTERM)
except Stopped as stopped:
    print(stopped.exit_code)
class Discarding:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
Discarding()
received = []
with stop_signals(received.append):
    print(received == [signal.SIGTERM])
numbers = queue.Queue()
pass_on_signals(numbers.put)
for number in (signal.SIGINT, signal.SIGHUP):
    signal.raise_signal(number)
    print(numbers.get(timeout=20) == number)
"""


def test_an_early_signal_is_not_lost_and_later_ones_are_passed_on_by_a_thread():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.split() == ["143", "True", "True", "True"], done.stderr
    assert done.stderr == ""
