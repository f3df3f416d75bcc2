"""Watches the memory of all nodes: names one that grows steadily, and a machine that comes near a limit, once each."""

import collections
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....runtime.deadlines import Clock
from ...node_names import kind_of, metric_of, number_of, policy_of
from ...processes.memory_limits import MemoryUse
from ..reports.messages import NodeHealth

_WINDOW_SECONDS = (30.0, 300.0, 3600.0)
"""Lengths of windows, for growth over minutes and over hours."""
_WINDOWS = 12
"""Windows over which growth must last."""
_LEAST_GROWTH = 64 * 2**20
_LEAST_GROWN = 0.1
_RISING = 0.8
"""Fraction of the windows that must have more than the one before."""
_LASTING = 0.6
"""Growth of the newer half of the windows, as a fraction of that of the older half; less is a buffer that fills."""
_FULL = 0.999
_SHOWN = 3
_MOST_OF_A_KIND = 64
"""Nodes of a kind up to which each has a metric of its own."""
_ENVIRONMENTS = "lower actors or envs_per_actor"
_CAUSES = {
    "actor": ("its environments, or callbacks", _ENVIRONMENTS),
    "evaluator": ("its environments, or callbacks", "evaluator false"),
    "replay": ("replay, although its table is full", "lower the size of replay, such as agent.replay.size"),
    "learner": ("weights, optimizer or batches", "lower agent.batch_size, or use a smaller network"),
    "inference": ("weights, or the states of its actors", _ENVIRONMENTS),
}
"""The cause of growth in a node of a kind, and the settings to lower where memory runs out."""
_OTHER = ("what it keeps of episodes and metrics", _ENVIRONMENTS)


class _Minima:
    """The minima of equal windows: what is freed again within one does not show.

    Args:
      seconds: length of a window.
      now: seconds.
    """

    def __init__(self, seconds: float, now: float):
        self._seconds, self._opened = seconds, now
        self._lowest: int | None = None
        self._windows: collections.deque[int] = collections.deque(maxlen=_WINDOWS)

    def add(self, now: float, memory: int) -> None:
        """Takes the memory at a time."""
        if self._lowest is not None and now - self._opened >= self._seconds:
            self._windows.append(self._lowest)
            self._opened, self._lowest = now, None
        self._lowest = memory if self._lowest is None else min(self._lowest, memory)

    def steady(self) -> tuple[int, float] | None:
        """Returns by how many bytes the memory has grown in how many seconds, if it grows steadily."""
        last = list(self._windows)
        if len(last) < _WINDOWS:
            return None
        older, newer = last[: _WINDOWS // 2], last[_WINDOWS // 2 :]
        grown = newer[-1] - older[0]
        rising = sum(after > before for before, after in zip(last[:-1], last[1:], strict=True))
        is_steady = (
            grown >= max(_LEAST_GROWTH, _LEAST_GROWN * older[0])
            and rising >= _RISING * (_WINDOWS - 1)
            and min(newer) >= max(older)
            and newer[-1] - older[-1] >= _LASTING * (newer[0] - older[0])
        )
        return (grown, (_WINDOWS - 1) * self._seconds) if is_steady else None


class Growth:
    """The memory of one process over time.

    Args:
      now: seconds.
      memory: bytes.
    """

    def __init__(self, now: float, memory: int):
        self.began, self.first, self.newest = now, memory, memory
        self.restart(now)

    def restart(self, now: float) -> None:
        """Begins anew to look for growth: what there was so far was to be expected."""
        self._scales = [_Minima(seconds, now) for seconds in _WINDOW_SECONDS]

    def add(self, now: float, memory: int) -> None:
        """Takes the memory at a time."""
        self.newest = memory
        for scale in self._scales:
            scale.add(now, memory)

    def steady(self) -> tuple[int, float] | None:
        """Returns by how many bytes the memory has grown in how many seconds, if it grows steadily."""
        return next(filter(None, (scale.steady() for scale in self._scales)), None)


class _Process(NamedTuple):
    """A process with nodes, and which incarnations these are."""

    host: str
    number: int


class MemoryWatch:
    """Returns lines for the user about the memory of a run.  Not thread-safe: called under the coordinator's lock.

    Args:
      clock: the clock; another one in tests.
    """

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._growths: dict[_Process, Growth] = {}
        self._fills: dict[str, float] = {}
        self._named: set[str] = set()

    def new(self, nodes: Mapping[str, NodeHealth], values: Mapping[str, float]) -> list[str]:
        """Returns new warnings about the memory of a run, one line each.

        Args:
          nodes: the newest health of every node that runs.
          values: the newest metrics, for how full replay is.
        """
        now = self._clock()
        processes: dict[_Process, list[str]] = {}
        for name, health in nodes.items():
            processes.setdefault(_Process(health.host, health.process), []).append(name)
        self._growths = {process: growth for process, growth in self._growths.items() if process in processes}
        for process, names in processes.items():
            memory = nodes[names[0]].memory
            if process not in self._growths or any(nodes[name].starting for name in names):
                self._growths[process] = Growth(now, memory)
            growth = self._growths[process]
            growth.add(now, memory)
            if any([self._is_filling(name, values) for name in names]):  # Each is to be asked.
                growth.restart(now)
        return [*self._growing(processes, nodes), *self._near(processes, nodes, values)]

    def _is_filling(self, name: str, values: Mapping[str, float]) -> bool:
        """Returns whether a node is replay, and has become fuller, or has not replaced its first items yet."""
        if kind_of(name) != "replay":
            return False
        fill, items, inserted = (_of_shard(name, values, metric) for metric in ("fill", "items", "inserted"))
        before = self._fills.get(name, -1.0)
        self._fills[name] = max(fill, before)
        return fill > before or (fill >= _FULL and inserted < 2 * items)

    def _growing(self, processes: Mapping[_Process, Sequence[str]], nodes: Mapping[str, NodeHealth]) -> list[str]:
        lines = []
        for process, names in processes.items():
            steady = self._growths[process].steady()
            if steady is None or self._named.issuperset(names):
                continue
            self._named.update(names)
            grown, seconds = steady
            if len(names) > 1:
                who = f"the process of all nodes on {process.host}"
                cause = "environments, callbacks, replay or weights: --launcher processes shows which"
            else:
                who, cause = names[0], _CAUSES.get(kind_of(names[0]), _OTHER)[0]
                if 2 * nodes[names[0]].memory_of_workers > nodes[names[0]].memory:
                    cause = "its environments, in processes of their own"
            lines.append(
                f"{who} grows steadily, by {_size(grown)} in the last {_duration(seconds)}, to "
                f"{_size(self._growths[process].newest)}; what grows: {cause}"
            )
        return lines

    def _near(
        self,
        processes: Mapping[_Process, Sequence[str]],
        nodes: Mapping[str, NodeHealth],
        values: Mapping[str, float],
    ) -> list[str]:
        lines = []
        for process, names in processes.items():
            fields = nodes[names[0]].memory_use
            use = None if fields is None else MemoryUse(*fields)
            if use is None or use.room > 0 or f"{process.host} {use.name}" in self._named:
                continue
            self._named.add(f"{process.host} {use.name}")
            of_host = [(other, who) for other, who in processes.items() if other.host == process.host]
            largest = sorted(of_host, key=lambda one: self._growths[one[0]].newest, reverse=True)[:_SHOWN]
            grown = max(of_host, key=lambda one: self._grown(one[0]))
            blamed = grown if self._grown(grown[0]) >= _LEAST_GROWTH else largest[0]
            if grown not in largest and blamed is grown:
                largest = [*largest[:-1], grown]
            advice = _CAUSES.get(kind_of(blamed[1][0]), _OTHER)[1]
            if len(blamed[1]) > 1:
                advice = f"{_ENVIRONMENTS}, or the size of replay"
            shown = ", ".join(self._described(one, who, values) for one, who in largest)
            lines.append(
                f"memory runs out on {process.host}: {_size(use.used)} of {_size(use.limit)} are in use "
                f"({use.name}), and at the limit the run crawls or the kernel kills its nodes; {shown}: {advice}"
            )
        return lines

    def _grown(self, process: _Process) -> int:
        return self._growths[process].newest - self._growths[process].first

    def _described(self, process: _Process, names: Sequence[str], values: Mapping[str, float]) -> str:
        """Returns the memory of a process, its growth, and how full replay is if it is that, in words."""
        who = names[0] if len(names) == 1 else "the process of all nodes"
        details = []
        if self._grown(process) >= _LEAST_GROWTH:
            seconds = self._clock() - self._growths[process].began
            details.append(f"{_size(self._grown(process))} more than {_duration(seconds)} ago")
        if kind_of(names[0]) == "replay" and len(names) == 1:
            details.append(f"{_of_shard(names[0], values, 'fill'):.0%} full")
        remarks = f" ({', '.join(details)})" if details else ""
        return f"{who} has {_size(self._growths[process].newest)}{remarks}"


def memory_metrics(nodes: Mapping[str, NodeHealth]) -> dict[str, float]:
    """Returns the memory of every node by metric; of a kind with many nodes, that of the largest."""
    kinds: dict[str, dict[str, float]] = {}
    for name, health in nodes.items():
        kind = metric_of(policy_of(name), f"{kind_of(name)}/memory")
        kinds.setdefault(kind, {})[f"{kind}_{number_of(name)}"] = health.memory
    return {
        name: value
        for kind, named in kinds.items()
        for name, value in (named if len(named) <= _MOST_OF_A_KIND else {f"{kind}_max": max(named.values())}).items()
    }


def _of_shard(name: str, values: Mapping[str, float], metric: str) -> float:
    return values.get(metric_of(policy_of(name), f"replay/{metric}_{number_of(name)}"), 0.0)


def _size(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
