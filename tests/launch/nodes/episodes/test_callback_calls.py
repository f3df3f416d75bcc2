"""Calls of callbacks: which are made, the time that they take, and what goes wrong in them."""

import pathlib
import time
from types import SimpleNamespace

import numpy as np
import pytest
from own_callbacks import Raising, Recorder, Silent

from callboard.callbacks import CallbackFailed, CallbackRun, Callbacks
from callboard.errors import CallboardError
from callboard.launch.nodes.episodes.callback_calls import CallbackCalls

RUN = CallbackRun("actor/0", None, pathlib.Path(), lambda: 10, lambda: None, lambda kind, value: None)


class Returning(Callbacks):
    def __init__(self, value):
        self.value = value

    def on_result(self, run, result):
        time.sleep(0.01)
        return self.value


def test_all_callbacks_that_override_a_method_are_called():
    first, second = Recorder(), Recorder(name_of_metric="other")
    calls = CallbackCalls([first, Silent(), second], RUN)
    assert calls.call("on_result", SimpleNamespace(environment_steps=4)) == {"half": 2.0}
    assert first.calls == second.calls == [("result", "actor/0")]
    assert calls.has("on_result") and calls.has("on_evaluation", "on_result")
    assert not CallbackCalls([Raising()], RUN).has("on_result", "on_episode_step")


def test_the_time_spent_in_callbacks():
    calls = CallbackCalls([Returning(None)], RUN)
    assert calls.call("on_result", {}) == {}
    assert 0.01 <= calls.seconds < 5 and calls.counts == {"callback_microseconds": int(1e6 * calls.seconds)}
    assert CallbackCalls((), RUN).counts == {}


def test_an_error_names_the_method_and_keeps_its_cause():
    with pytest.raises(CallbackFailed, match="the callback Raising.on_episode_end raised ValueError") as caught:
        CallbackCalls([Raising()], RUN).call("on_episode_end", None)
    assert isinstance(caught.value.__cause__, ValueError)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("error, line", [(SystemExit(3), "SystemExit: 3"), (Unprintable(), "Unprintable: its message")])
def test_a_callback_may_raise_anything(error, line):
    class Leaving(Callbacks):
        def on_result(self, run, result):
            raise error

    with pytest.raises(CallbackFailed, match=rf"Leaving.on_result raised {line}"):
        CallbackCalls([Leaving()], RUN).call("on_result", None)


@pytest.mark.parametrize("value, says", [(5, "it returned an int, not a mapping"), ({"a": "b"}, "the metric 'a'")])
def test_what_is_no_metric_is_an_error(value, says):
    with pytest.raises(CallbackFailed, match=says):
        CallbackCalls([Returning(value)], RUN).call("on_result", {})


def test_metrics_are_numbers_of_any_kind():
    returned = {"a": np.bool_(True), "b": True, "c": np.int64(3), "d": np.float32(0.5), "e": np.array([2])}
    returned["f"] = np.float64(0.25)
    metrics = CallbackCalls([Returning(returned)], RUN).call("on_result", {})
    assert metrics == {"a": 1, "b": 1, "c": 3, "d": 0.5, "e": 2, "f": 0.25}
    assert all(type(value) is float for value in metrics.values()), "Courier hangs on NumPy values"


@pytest.mark.parametrize("value", ["1", np.arange(2), 10**400, 1j, None])
def test_a_metric_that_is_no_number_is_an_error(value):
    with pytest.raises(CallbackFailed, match="the metric 'a' with the value"):
        CallbackCalls([Returning({"a": value})], RUN).call("on_result", {})


@pytest.mark.parametrize("reason", [None, "", 3, "solved \ud800"])
def test_a_reason_to_stop_is_a_text(reason):
    with pytest.raises(CallboardError, match="reason to stop must be a text"):
        RUN.stop(reason)
