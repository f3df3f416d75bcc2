"""Collects the health of all nodes, their restarts, and the reasons for which they wait."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...node_names import kind_of, number_of
from ..node import NodeContext
from ..reports.messages import NodeHealth
from ..reports.node_health import NodeProbe
from .counters import Counters

_REASONS = (("replay", "replay"), ("newer weights", "learner"), ("inference/", "inference"), ("data", "data"))
"""Beginnings of what a node waits for, as it marks it, and the part of the run that stands behind."""
_LONG_SECONDS = 5.0
"""Time that a transfer of weights takes from which on it is worth a remark."""
_RESTARTS = "restarts of "
"""Beginning of the name of the counter of a node's restarts."""


class NodeOverview:
    """The newest health of every node.  Not thread-safe: the coordinator calls it under its lock.

    Args:
      clock: returns seconds.
      own: context of the coordinator, which is one of the nodes.
      counters: the run's counters, which also keep the restarts.
      start: id of this start of the run, see `Run`.  Nodes of an earlier start have ended, and were not restarted.
      expected: names of the nodes that will report.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        own: NodeContext | None = None,
        counters: Counters | None = None,
        start: str = "",
        expected: Sequence[str] = (),
    ):
        self._clock, self._begun, self._expected = clock, clock(), expected
        self._counters = Counters() if counters is None else counters
        started = f"start {start}"
        self._incarnations: dict[str, str] = {}
        if self._counters.total(started):  # This coordinator is itself a restarted one.
            self._incarnations = self._counters.incarnations
        else:
            self._counters.add_past(started, 1)
        self._own = own
        self._probe = None if own is None else NodeProbe(own.progress, dict, lambda: None)
        self._nodes: dict[str, tuple[float, NodeHealth | None]] = {}
        self._lags: dict[str, int] = {}
        if own is not None:
            self.update(own.name, own.incarnation_id, None)

    def update(
        self, name: str, incarnation_id: str, health: NodeHealth | None, learner_step: float | None = None
    ) -> None:
        """Takes a report of a node.

        Args:
          name: name of the node.
          incarnation_id: id of its incarnation.
          health: its health, or None if it has not been measured anew.
          learner_step: step of the learner's newest weights, for the lag of those that the node acts with.
        """
        newest = self._nodes[name][1] if name in self._nodes else None
        if self._incarnations.setdefault(name, incarnation_id) != incarnation_id:
            self._incarnations[name] = incarnation_id
            self._counters.add_past(f"{_RESTARTS}{name}", 1)
            newest = None
        if health is not None:
            newest = health
        self._nodes[name] = self._clock(), newest
        if health is not None and newest is not None and None not in (newest.weights, learner_step):
            self._lags[name] = max(0, int(learner_step or 0) - (newest.weights or 0))
        elif newest is None:
            self._lags.pop(name, None)

    def update_own(self) -> None:
        """Measures the coordinator itself, from time to time."""
        if self._own is not None and self._probe is not None:
            self.update(self._own.name, self._own.incarnation_id, self._probe.measure())

    @property
    def restarts(self) -> dict[str, int]:
        """Restarts of nodes in this run, by name; only of those that were restarted."""
        totals = self._counters.totals.items()
        return {name.removeprefix(_RESTARTS): count for name, count in totals if name.startswith(_RESTARTS)}

    def healths(self) -> dict[str, NodeHealth]:
        """Returns the newest health of every node that has reported one."""
        return {name: health for name, (_, health) in self._nodes.items() if health is not None}

    def waiting(self) -> dict[str, dict[str, float]]:
        """Returns for how much of the time nodes waited, by kind of node and by `data`, `replay`, `learner`, ...

        The fractions are means over the nodes of a kind that have reported their health and are not starting.
        """
        by_kind: dict[str, list[dict[str, float]]] = {}
        for name, (_, health) in self._nodes.items():
            if health is not None and not health.starting:
                by_kind.setdefault(kind_of(name), []).append(_by_reason(health.waiting))
        return {
            kind: {
                reason: statistics.fmean(waiting.get(reason, 0.0) for waiting in nodes)
                for reason in sorted({reason for waiting in nodes for reason in waiting})
            }
            for kind, nodes in by_kind.items()
        }

    def slow_weights(self) -> tuple[float, float, int] | None:
        """Returns the bytes of weights that take long, the seconds, and how many machines get them.

        On each machine, one node of a kind fetches them, see `weight_relay`.
        """
        slow: dict[str, list[Sequence[float]]] = {}
        for name, (_, health) in self._nodes.items():
            if health is not None and health.transfer and health.transfer[1] >= _LONG_SECONDS:
                slow.setdefault(kind_of(name), []).append(health.transfer)
        if not slow:
            return None
        transfers = max(slow.values(), key=len)
        size, seconds = (statistics.fmean(values) for values in zip(*transfers, strict=True))
        return size, seconds, len(transfers)

    def evaluation(self) -> Sequence[int] | None:
        """Returns how many episodes of an evaluation have ended, and of how many; None where none is under way."""
        healths = (health for name, (_, health) in self._nodes.items() if kind_of(name) == "evaluator")
        return next((health.evaluation for health in healths if health is not None), None)

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of all nodes together."""
        waiting = self.waiting()
        actor, learner = waiting.get("actor", {}), waiting.get("learner", {})
        metrics: dict[str, float] = {"restarts": sum(self.restarts.values())}
        if "learner" in waiting:
            metrics["learner/waiting_for_data"] = learner.get("data", 0.0)
        if "actor" in waiting:
            metrics["actor/waiting_for_learner"] = actor.get("replay", 0.0) + actor.get("learner", 0.0)
        if "inference" in waiting:
            metrics["actor/waiting_for_inference"] = actor.get("inference", 0.0)
        return metrics

    def table(self) -> list[dict[str, Any]]:
        """Returns a row for every node, ordered by name.

        A row holds `node`, `restarts`, `silent` (seconds since the last report) and, once they are known, the fields of
        `NodeHealth` and `lag`, the learner steps by which the node's weights are behind.
        """
        now = self._clock()
        rows = []
        for name in sorted({*self._expected, *self._nodes}, key=_order):
            heard, health = self._nodes.get(name, (self._begun, None))
            restarts = self._counters.total(f"{_RESTARTS}{name}")
            row: dict[str, Any] = {"node": name, "silent": now - heard, "restarts": restarts}
            if health is not None:
                row |= health._asdict()
                if name in self._lags:
                    row["lag"] = self._lags[name]
            rows.append(row)
        return rows


def _by_reason(waiting: Mapping[str, float]) -> dict[str, float]:
    reasons: dict[str, float] = {}
    for name, fraction in waiting.items():
        reason = next((reason for begin, reason in _REASONS if name.startswith(begin)), "")
        if reason:
            reasons[reason] = reasons.get(reason, 0.0) + fraction
    return reasons


def _order(name: str) -> tuple[str, int, str]:
    return kind_of(name), number_of(name), name
