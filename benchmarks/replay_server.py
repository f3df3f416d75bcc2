"""Stored transitions per second: a Reverb server in a Ray actor, and an actor that stores transitions one at a time.

From the root of the repository, with the extra `ray` installed:

    python -m callboard.benchmarks.replay_server --output benchmarks/results/replay_server.json

The same processes write to both, in turn within every repeat.  A transition is counted once its store has confirmed it.
The frames are noise, which does not compress.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


import ray
import reverb

from callboard.benchmarks.streams import OBSERVATIONS, layout_of, timesteps_of
from callboard.data import Layout
from callboard.launch.launchers.ray.node_actors import RayHandle
from callboard.replay import (
    ReplayHandle,
    SequenceWriter,
    WindowFormat,
    WindowWriter,
    sequence_signature,
    start_server,
)

from ..launch.processes.ports import RAY_PORTS, reserve_among

ENVIRONMENTS = 16
LENGTH = 20
CAPACITY = 6_400
IN_FLIGHT = 200
PATIENCE_SECONDS = 600.0
WINDOWS, SEQUENCES, ONE_BY_ONE = "transitions", "sequences", "one at a time"


class ReplayServer:
    """A Reverb server, started as by the replay node, with tables that accept all items."""

    def __init__(self, layout: Layout):
        def table(name: str, size: int, signature: Any) -> reverb.Table:
            limiter = reverb.rate_limiters.MinSize(1)
            uniform, oldest = reverb.selectors.Uniform(), reverb.selectors.Fifo()
            return reverb.Table(name, uniform, oldest, size, limiter, signature=signature)

        sequences = sequence_signature(layout, LENGTH, ENVIRONMENTS)
        tables = [
            table(WINDOWS, CAPACITY, WindowFormat(layout, 1).signature()),
            table(SEQUENCES, CAPACITY // (LENGTH * ENVIRONMENTS), sequences),
        ]
        self._port = reserve_among(RAY_PORTS)
        # Nothing is stored in the directory; it is only needed while the server starts.
        with tempfile.TemporaryDirectory() as directory:
            self._server = start_server(tables, self._port.port, pathlib.Path(directory), restore=False)

    def address(self) -> str:
        return f"{ray.util.get_node_ip_address()}:{self._port.port}"


class Store:
    """The obvious first implementation: an actor that receives one transition per call."""

    def __init__(self) -> None:
        self._transitions: collections.deque[Any] = collections.deque(maxlen=CAPACITY)

    def add(self, transition: Any) -> None:
        self._transitions.append(transition)


class Writer:
    """Writes for some seconds, and returns the transitions stored per second."""

    def __init__(self, layout: Layout):
        self._layout = layout
        self._timesteps = timesteps_of(layout)

    def to_replay(self, server: Any, kind: str, seconds: float) -> float:
        """Write as agents do: `transitions` like SAC and Ape-X, one per item, or `sequences` like IMPALA and PPO."""
        handle = RayHandle("replay/0", server)
        replay = ReplayHandle(lambda: [handle.address()])
        writer: Any
        if kind == WINDOWS:
            writer, each = WindowWriter(replay, WindowFormat(self._layout, 1), WINDOWS), 1
        else:
            writer, each = SequenceWriter(replay, self._layout, SEQUENCES, LENGTH, LENGTH), LENGTH * ENVIRONMENTS
        begun, number = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            writer.append(self._timesteps[number % len(self._timesteps)], ())
            number += 1
            while not writer.ready(0.5):
                pass
        while not writer.ready(0.5, max_pending=0):
            pass
        rate = writer.items_written * each / (time.perf_counter() - begun)
        writer.close()
        return rate

    def one_by_one(self, store: Any, seconds: float) -> float:
        """Make one call per transition, with a bounded number of pending calls."""
        transitions = [
            (
                timestep.observation[env],
                timestep.action[env],
                timestep.reward[env],
                timestep.discount[env],
                timestep.first[env],
            )
            for timestep in self._timesteps
            for env in range(ENVIRONMENTS)
        ]
        pending: list[Any] = []
        begun, number = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            pending.append(store.add.remote(transitions[number % len(transitions)]))
            number += 1
            if len(pending) == IN_FLIGHT:
                _, pending = ray.wait(pending, num_returns=IN_FLIGHT // 2)
        ray.get(pending)
        return number / (time.perf_counter() - begun)


class Row(NamedTuple):
    """A row of the table; rates are medians over the repeats."""

    observation: str
    writers: int
    written_as: str
    replay_server: float
    one_at_a_time: float
    ratio: float
    """Median of the repeats' ratios."""
    least: float
    largest: float


def measure(name: str, repeats: int, seconds: float) -> list[Row]:
    """Measure all rates with one kind of observation."""
    layout = layout_of(OBSERVATIONS[name], ENVIRONMENTS)
    server: Any = ray.remote(num_cpus=1)(ReplayServer).remote(layout)
    store: Any = ray.remote(num_cpus=1)(Store).remote()
    writers: list[Any] = [ray.remote(num_cpus=1)(Writer).remote(layout) for _ in range(2)]
    rates: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
    for repeat in range(repeats + 1):
        for count in (1, 2):
            for kind in (WINDOWS, ONE_BY_ONE, SEQUENCES):
                if kind == ONE_BY_ONE:
                    calls = [writer.one_by_one.remote(store, seconds) for writer in writers[:count]]
                else:
                    calls = [writer.to_replay.remote(server, kind, seconds) for writer in writers[:count]]
                rate = sum(ray.get(calls, timeout=PATIENCE_SECONDS))
                if repeat:  # The first repeat is a warm-up.
                    rates[kind, count].append(rate)
    for actor in (server, store, *writers):
        ray.kill(actor)
    return [row(name, count, kind, rates) for count in (1, 2) for kind in (WINDOWS, SEQUENCES)]


def row(name: str, count: int, kind: str, rates: dict[tuple[str, int], list[float]]) -> Row:
    blocks, single = rates[kind, count], rates[ONE_BY_ONE, count]
    ratios = [mine / theirs for mine, theirs in zip(blocks, single, strict=True)]
    return Row(
        observation=name,
        writers=count,
        written_as=kind,
        replay_server=round(statistics.median(blocks)),
        one_at_a_time=round(statistics.median(single)),
        ratio=round(statistics.median(ratios), 2),
        least=round(min(ratios), 2),
        largest=round(max(ratios), 2),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="JSON file")
    settings = parser.parse_args()
    ray.init(num_cpus=8, include_dashboard=False)
    try:
        rows = [row for name in OBSERVATIONS for row in measure(name, settings.repeats, settings.seconds)]
    finally:
        ray.shutdown()
    result = {
        "environments of a writer": ENVIRONMENTS,
        "calls on their way": IN_FLIGHT,
        "repeats": settings.repeats,
        "seconds": settings.seconds,
        "processors": os.cpu_count(),
        "rows": [row._asdict() for row in rows],
    }
    settings.output.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
