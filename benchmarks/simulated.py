"""The load that 4 to 1,000 simulated actors put on a run's coordinator, the learner's link and replay.

The servers are real, each in a process of its own: the coordinator node behind Courier, the learner's store of weights
behind Courier, and a Reverb server with a stream from every actor.  An actor is simulated by what it sends and
receives, at the rate of 16 environments with 15 steps/s each; it plays nothing and computes nothing:

- it reports as often as the coordinator's answers demand, with counts, an episode, a request for its lease and health,
- it writes a sequence of 20 timesteps of the whole batch every 1.33 s, which takes one call here, not one a timestep,
- 20 actors are a machine, on which one fetches weights, as the relay does.  Machines are threads of a few processes.

There is no learner: the oldest sequences are overwritten.  A figure is set beside what the actors would do at exactly
their rate, and the coordinator's CPU beside one core.
"""

import dataclasses
import heapq
import math
import pathlib
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import psutil
import reverb
import tensorflow as tf

from ..agents.impala import Impala
from ..agents.variables.weights import WeightFetcher
from ..data import Version
from ..launch.experiments.checked_run import Run
from ..launch.experiments.experiment import Experiment
from ..launch.launchers.node_processes.forkserver import fork_process
from ..launch.nodes.acting.weight_fetching import fetch_pause
from ..launch.nodes.acting.weight_store import WeightStore
from ..launch.nodes.coordination.coordinator import Coordinator
from ..launch.nodes.node import NodeContext
from ..launch.nodes.reports.messages import LeaseRequest, NodeHealth, Report, RunState, plain_message
from ..launch.processes.listen_filter import PortGuard
from ..launch.processes.ports import reserve_any
from ..launch.run_directory.layout import RunDirectory
from .results import CaseResult
from .side import SideFailed

_COUNTS = (4, 16, 64, 256, 1000)
_ENVS, _STEPS_A_SECOND, _LENGTH = 16, 15, 20
_ITEM_SECONDS = _LENGTH / _STEPS_A_SECOND
_STEP_BYTES = 40
"""Bytes of one timestep of one environment, as those of CartPole."""
_OF_MACHINE = 20
_PROCESSES = 4
_WEIGHT_BYTES = 1_600_000
_VERSION_SECONDS = 2.0
_SECONDS = 20.0
_WARM_SECONDS = 0.04
"""For each actor."""
_CALL_SECONDS = 5.0
_START_SECONDS = 300.0


class _Cost(NamedTuple):
    """What a process has used and done so far."""

    cpu: float
    memory: int
    done: float
    """Reports, bytes or items, of a server; of simulated actors the calls that failed."""
    seconds: Sequence[float] = ()
    """Durations of reports, of simulated actors."""
    ages: Sequence[float] = ()
    """Ages of weights when they arrived."""
    answered: float = 0.0
    """Seconds in which the coordinator has answered reports, in all."""


def _cost(done: float, seconds: Sequence[float] = (), ages: Sequence[float] = (), answered: float = 0.0) -> _Cost:
    process = psutil.Process()
    times = process.cpu_times()
    return _Cost(times.user + times.system, process.memory_info().rss, done, seconds, ages, answered)


def _answer(pipe: Connection, cost: Callable[[], _Cost]) -> None:
    """Answers every message with the cost so far, until the pipe is closed."""
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        pipe.send(tuple(cost()))


def _serve_courier(port: int, methods: Sequence[Callable[..., Any]]) -> Any:
    import courier

    server = courier.Server(port=port)
    for method in methods:
        server.Bind(method.__name__, method)
    server.Start()
    PortGuard().close(port)
    return server


def _coordinator(actors: int, path: str, port: int, pipe: Connection) -> None:
    directory = RunDirectory(pathlib.Path(path))
    directory.create()
    stop = threading.Event()
    context = NodeContext("coordinator/0", "1", stop, lambda kind, content: None, port)
    experiment = Experiment(Impala(), "CartPole-v1", actors=actors, evaluator=False, max_steps=10**12)
    node = Coordinator(context, Run(experiment, experiment.layout(), directory.identified(), start="1"))
    reports, answered = 0, 0.0

    def report(*arguments: Any) -> list[Any]:
        nonlocal reports, answered
        begun = time.thread_time()
        answer = node.report(*arguments)
        reports, answered = reports + 1, answered + time.thread_time() - begun
        return answer

    server = _serve_courier(port, [report])
    threading.Thread(target=node.run, daemon=True).start()
    pipe.send("ready")
    _answer(pipe, lambda: _cost(reports, answered=answered))
    stop.set()
    server.Stop()


def _learner(port: int, pipe: Connection) -> None:
    store = WeightStore()
    weights = np.random.default_rng(0).integers(0, 256, _WEIGHT_BYTES, np.uint8)
    sent = 0

    def publish() -> None:
        while True:
            # The step is the time, from which the age of weights follows where they arrive.
            store.put(Version(1, int(time.monotonic() * 1000)), weights)
            time.sleep(_VERSION_SECONDS)

    def get_variables(have: Sequence[int] | None, most: int | None = None) -> Any:
        nonlocal sent
        answer = store.get_variables(have, most)
        if answer is not None and not isinstance(answer[1], int):
            sent += len(answer[1])
        return answer

    def get_part(version: Sequence[int], offset: int, size: int) -> Any:
        nonlocal sent
        part = store.get_part(version, offset, size)
        sent += 0 if part is None else len(part)
        return part

    server = _serve_courier(port, [get_variables, get_part])
    threading.Thread(target=publish, daemon=True).start()
    pipe.send("ready")
    _answer(pipe, lambda: _cost(sent))
    server.Stop()


def _replay(path: str, port: int, pipe: Connection) -> None:
    signature = tf.TensorSpec((1, _LENGTH + 1, _ENVS, _STEP_BYTES), tf.uint8)
    fifo = reverb.selectors.Fifo
    table = reverb.Table("queue", fifo(), fifo(), 1000, reverb.rate_limiters.MinSize(1), signature=signature)
    # Without one of its own, Reverb leaves a temporary directory.
    server = reverb.Server([table], port, reverb.checkpointers.DefaultCheckpointer(path))
    PortGuard().close(port)
    pipe.send("ready")
    _answer(pipe, lambda: _cost(table.info.rate_limiter_info.insert_stats.completed))
    server.stop()


class _Machine(WeightFetcher):
    """Fetches weights in place of all actors of a machine; keeps their ages."""

    def __init__(self, learner: str, ages: list[float]):
        import courier

        super().__init__(courier.Client(learner, call_timeout=_CALL_SECONDS))
        self._ages = ages

    def receive(self, version: tuple[int, int], packed: np.ndarray) -> None:
        self._ages.append(time.monotonic() - version[1] / 1000)


@dataclasses.dataclass
class _Actors:
    """Some of the simulated actors, in one process: for each machine, a thread reports, one writes and one fetches."""

    indices: Sequence[int]
    ports: Sequence[int]
    machines: int
    """Number of machines of all processes."""

    def __post_init__(self) -> None:
        self.failed = 0
        self.seconds: list[float] = []
        self.ages: list[float] = []

    def start(self) -> None:
        for first in range(0, len(self.indices), _OF_MACHINE):
            share = self.indices[first : first + _OF_MACHINE]
            machine = _Machine(f"localhost:{self.ports[1]}", self.ages)
            for target, argument in ((self._report, share), (self._write, share), (self._fetch, machine)):
                threading.Thread(target=target, args=(argument,), daemon=True).start()

    def _at_their_times(self, indices: Sequence[int], first: float, act: Callable[[int], float]) -> None:
        """Calls `act` for every actor, again after the seconds that it returns; at first spread over `first`."""
        due = [(time.monotonic() + random.uniform(0.0, first), index) for index in indices]
        heapq.heapify(due)
        while True:
            at, index = due[0]
            time.sleep(max(0.0, at - time.monotonic()))
            # One that is late does not catch up, as an actor that has waited does not.
            heapq.heapreplace(due, (max(at, time.monotonic() - 0.1) + act(index), index))

    def _report(self, indices: Sequence[int]) -> None:
        import courier
        from courier.python.client import StatusNotOk

        client = courier.Client(f"localhost:{self.ports[0]}", call_timeout=_CALL_SECONDS)
        known: dict[int, Any] = dict.fromkeys(indices)
        sequences = dict.fromkeys(indices, 0)

        def report(index: int) -> float:
            sequences[index] += 1
            steps = int(sequences[index] * 0.5 * _ENVS * _STEPS_A_SECOND)
            health = NodeHealth("host", index, 0.5, 10**8, "in environment step", {"replay to take data": 0.1}, 7)
            counts = {"environment_steps": steps, "episodes": steps // 100}
            message = Report(counts, {}, [(100.0, 100)], lease=LeaseRequest(steps + 10**6, False), health=health)
            begun = time.monotonic()
            try:
                answer = client.report(
                    f"actor/{index}", str(index), sequences[index], plain_message(message), known[index]
                )
            except StatusNotOk:
                self.failed += 1
                return 1.0
            self.seconds.append(time.monotonic() - begun)
            state = RunState.of(answer)
            known[index] = state.incarnations_known
            return state.report_seconds

        self._at_their_times(indices, 1.0, report)

    def _write(self, indices: Sequence[int]) -> None:
        client = reverb.Client(f"localhost:{self.ports[2]}")
        writers = {index: client.trajectory_writer(num_keep_alive_refs=1) for index in indices}
        block = np.random.default_rng(0).integers(0, 256, (_LENGTH + 1, _ENVS, _STEP_BYTES), np.uint8)

        def write(index: int) -> float:
            writer = writers[index]
            writer.append([block])
            writer.create_item("queue", 1.0, [writer.history[0][-1:]])
            writer.flush(block_until_num_items=2, timeout_ms=int(1000 * _CALL_SECONDS))
            return _ITEM_SECONDS

        self._at_their_times(indices, _ITEM_SECONDS, write)

    def _fetch(self, machine: _Machine) -> None:
        from courier.python.client import StatusNotOk

        while True:
            try:
                machine.fetch()
            except StatusNotOk:
                self.failed += 1
            time.sleep(fetch_pause(self.machines))


def _simulate(actors: _Actors, pipe: Connection) -> None:
    actors.start()
    pipe.send("ready")
    _answer(pipe, lambda: _cost(actors.failed, list(actors.seconds), list(actors.ages)))


class Figures(NamedTuple):
    """What a number of actors have cost, per second."""

    reports: float
    report_milliseconds: tuple[float, float]
    """Median and 99th percentile."""
    answer_milliseconds: float
    """Processor time in which the coordinator answers a report."""
    coordinator_cores: float
    link: float
    """Bytes a second that the learner sends."""
    age: float
    """Mean age of weights when they arrive, in seconds."""
    learner_cores: float
    items: float
    replay_cores: float
    megabytes: tuple[float, float, float]
    """Memory of coordinator, learner and replay."""
    failed: int
    actors_cores: float
    """Of the processes that simulate the actors."""


def measure_actors(actors: int, seconds: float) -> Figures:
    """Returns what so many simulated actors cost, over so many seconds.

    Raises:
      SideFailed: a process has died, or does not answer.
    """
    machines = math.ceil(actors / _OF_MACHINE)
    opened = [reserve_any() for _ in range(3)]
    ports = [one.port for one in opened]
    for one in opened:
        one.release()
    processes = []
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as directory:
        try:
            processes = [
                fork_process(_coordinator, actors, f"{directory}/run", ports[0]),
                fork_process(_learner, ports[1]),
                fork_process(_replay, f"{directory}/replay", ports[2]),
            ]
            for process in processes:
                _received(process)
            shares = [range(actors)[first : first + _OF_MACHINE] for first in range(0, actors, _OF_MACHINE)]
            for number in range(min(_PROCESSES, machines)):
                indices = [index for share in shares[number :: min(_PROCESSES, machines)] for index in share]
                processes.append(fork_process(_simulate, _Actors(indices, ports, machines)))
                _received(processes[-1])
            # Until all have reported a few times.
            time.sleep(max(seconds / 2, _WARM_SECONDS * actors))
            before = [_costs(process) for process in processes]
            time.sleep(seconds)
            after = [_costs(process) for process in processes]
        finally:
            for process in processes:
                process.pipe.close()
                process.kill()
                process.join()
    rates = [(two.done - one.done) / seconds for one, two in zip(before, after, strict=True)]
    cores = [(two.cpu - one.cpu) / seconds for one, two in zip(before, after, strict=True)]
    waited = sorted(value for one, two in zip(before, after, strict=True) for value in two.seconds[len(one.seconds) :])
    ages = [value for one, two in zip(before, after, strict=True) for value in two.ages[len(one.ages) :]]
    if not waited or not ages:
        raise SideFailed(f"no report or no weights within {seconds:.0f} s")
    return Figures(
        rates[0],
        (1000 * statistics.median(waited), 1000 * waited[int(0.99 * len(waited))]),
        1000 * (after[0].answered - before[0].answered) / max(1.0, after[0].done - before[0].done),
        cores[0],
        rates[1],
        statistics.fmean(ages),
        cores[1],
        rates[2],
        cores[2],
        (after[0].memory / 2**20, after[1].memory / 2**20, after[2].memory / 2**20),
        int(sum(cost.done for cost in after[3:])),
        sum(cores[3:]),
    )


def _costs(process: Any) -> _Cost:
    process.pipe.send("cost")
    return _Cost(*_received(process))


def _received(process: Any) -> Any:
    try:
        if process.pipe.poll(_START_SECONDS):
            return process.pipe.recv()
    except (EOFError, OSError):
        pass
    raise SideFailed("a process of the simulation has died, or does not answer")


def measure(repeats: int, quick: bool, only: str, notify: Callable[[str], None]) -> list[CaseResult]:
    """Returns the results of all numbers of actors; see `harness.BENCHMARKS`."""
    results = []
    for actors in (2, 4) if quick else _COUNTS:
        if only not in f"{actors:,} actors":
            continue
        found = [measure_actors(actors, 4.0 if quick else _SECONDS) for _ in range(repeats)]
        for one in found:
            notify(_line(actors, one))
        machines = math.ceil(actors / _OF_MACHINE)
        expected = {
            "reports/s": ([one.reports for one in found], min(actors / 0.5, 500.0), True),
            "sequences/s": ([one.items for one in found], actors / _ITEM_SECONDS, True),
            "MB/s on the learner's link": (
                [one.link / 1e6 for one in found],
                machines * _WEIGHT_BYTES / _VERSION_SECONDS / 1e6,
                False,
            ),
            "cores of the coordinator": ([one.coordinator_cores for one in found], 1.0, False),
        }
        results += [
            CaseResult(f"{actors:,} actors", unit, ours, [limit] * repeats, None, higher)
            for unit, (ours, limit, higher) in expected.items()
        ]
    return results


def _line(actors: int, one: Figures) -> str:
    median, most = one.report_milliseconds
    parts = [
        f"{actors:,} actors: {one.reports:.0f} reports/s of {median:.1f} ms (99 %: {most:.0f} ms)",
        f"{one.answer_milliseconds:.3f} ms of CPU each, coordinator {one.coordinator_cores:.2f} cores",
        f"link {one.link / 1e6:.1f} MB/s, weights {one.age:.2f} s old, learner {one.learner_cores:.2f} cores",
        f"{one.items:.1f} sequences/s, replay {one.replay_cores:.2f} cores",
        f"memory {', '.join(f'{size:.0f}' for size in one.megabytes)} MiB",
        f"{one.failed} calls failed; the simulation itself {one.actors_cores:.2f} cores",
    ]
    return "; ".join(parts)
