"""Calls of a run's callbacks: the time that they take, their errors, and what they return."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....callbacks import CallbackFailed, CallbackRun, Metrics
from ....environments.batches.episode_metrics import as_number
from ....errors import anything_raised, check_text, one_line, type_text
from ....settings.callback_settings import make_callbacks, overridden
from ...experiments.checked_run import Run
from ..reports.reporting import Reporter


class CallbackCalls:
    """Calls the callbacks of a run in one node.

    Args:
      callbacks: see `callbacks.callback_settings`; instances are made of those that are named.
      run: what they see of the run.
    """

    def __init__(self, callbacks: Any, run: CallbackRun):
        self._callbacks = make_callbacks(callbacks)
        self._run = run
        self._methods: dict[str, list[Callable[..., Any]]] = {}
        self.seconds = 0.0
        """Time spent in callbacks so far."""

    def has(self, *methods: str) -> bool:
        """Returns whether a callback overrides one of these methods."""
        return any(overridden(type(callbacks), *methods) for callbacks in self._callbacks)

    def call(self, method: str, *arguments: Any) -> Metrics:
        """Calls a method of all callbacks that override it, and returns all their metrics.

        Raises:
          CallbackFailed: one has raised, or returned something else than metrics.
        """
        metrics: dict[str, float] = {}
        begun = time.perf_counter()
        for function in self._overriding(method):
            try:
                metrics.update(_checked(function(self._run, *arguments)))
            except anything_raised() as error:
                name = f"{type(getattr(function, '__self__', None)).__qualname__}.{method}"
                raise CallbackFailed(f"the callback {name} raised {one_line(error)}") from error
        self.seconds += time.perf_counter() - begun
        return metrics

    @property
    def counts(self) -> dict[str, int]:
        """The time spent in callbacks as a count for reports; empty without callbacks."""
        return {"callback_microseconds": int(1e6 * self.seconds)} if self._callbacks else {}

    def _overriding(self, method: str) -> Sequence[Callable[..., Any]]:
        found = self._methods.get(method)
        if found is None:
            found = self._methods[method] = [
                getattr(callbacks, method) for callbacks in self._callbacks if overridden(type(callbacks), method)
            ]
        return found


def callback_run(node: str, run: Run, reporter: Reporter) -> CallbackRun:
    """Returns the view of the run that callbacks get in a node that reports to the coordinator."""

    def request(kind: str, value: Any) -> None:
        reporter.request(kind, value)
        reporter.report_now()

    return CallbackRun(
        node,
        run.experiment,
        run.directory.path,
        lambda: reporter.state.environment_steps,
        lambda: reporter.state.control.task,
        request,
    )


def _checked(metrics: Any) -> dict[str, float]:
    """Returns metrics as plain numbers.

    Raises:
      TypeError: they are not numbers by name.
      CallboardError: a name is no text in UTF-8.
    """
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"it returned {type_text(metrics)}, not a mapping of metrics or None")
    checked = {}
    for name, value in metrics.items():
        number = as_number(value)
        if not isinstance(name, str) or number is None:
            raise TypeError(f"it returned the metric {name!r} with the value {value!r}, not a number by name")
        check_text(name, "it returned the metric")
        checked[name] = number
    return checked
