"""Faults of a run that last for a while, each a context manager, and a schedule of them that a seed chooses."""

import collections
import contextlib
import os
import random
import signal
import time

NODES = ("actor/0", "actor/1", "learner/0", "replay/0", "coordinator/0", "evaluator/0")
MOST_DEATHS = 3


class Scene:
    """What faults are done to.

    Args:
      run: the `CommandRun` of the run; on several hosts, of the first one.
      chance: chooses what the faults leave open.
      hosts: the `Hosts` of the run, if it has several.
      cluster: the Ray cluster of the run, if it has one.
    """

    def __init__(self, run, chance, hosts=None, cluster=None):
        self.run, self.chance, self.hosts, self.cluster = run, chance, hosts, cluster

    def processes(self, host=""):
        """The processes of the run, or those of a host."""
        run = self.hosts.runs[host] if host else self.run
        run.look()
        return [run.process.pid, *run.seen]


@contextlib.contextmanager
def kill(scene, node):
    os.kill(scene.run.pid_of(node), signal.SIGKILL)
    yield


@contextlib.contextmanager
def stop(scene, node):
    """A node that hangs; the supervisor kills it if that lasts."""
    with stopped([scene.run.pid_of(node)]):
        yield


@contextlib.contextmanager
def freeze(scene, host):
    """All of the run stands still, or a host of it, as on a machine that sleeps."""
    with stopped(scene.processes(host)):
        yield


@contextlib.contextmanager
def fill(scene, _):
    """A full disk."""
    path = scene.run.run_dir / "filler"
    with contextlib.suppress(OSError), path.open("wb") as file:
        while True:
            file.write(bytes(2**16))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def cut(scene, host):
    """The cable of a host is pulled out, and put in again."""
    scene.hosts.network.cut(host)
    try:
        yield
    finally:
        scene.hosts.network.restore(host)


@contextlib.contextmanager
def disturb(scene, host):
    """Packets from and to a host are lost or late."""
    loss, delay = scene.chance.choice([(0.05, 0.0), (0.0, 0.2), (0.02, 0.05)])
    scene.hosts.network.disturb(host, loss, delay, scene.chance.randrange(2**31))
    try:
        yield
    finally:
        scene.hosts.network.restore(host)


@contextlib.contextmanager
def lose_machine(scene, _):
    """A machine of the Ray cluster dies with all that runs on it; another one takes its place."""
    workers = sorted(scene.cluster.worker_nodes, key=lambda machine: machine.node_id)
    scene.cluster.remove_node(scene.chance.choice(workers), allow_graceful=False)
    try:
        yield
    finally:
        scene.cluster.add_node(num_cpus=6)


@contextlib.contextmanager
def stopped(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Schedule:
    """Pairs of faults, chosen by a seed; no node is struck so often within a window that the run is given up.

    Args:
      faults: pairs of a fault and its target.
      seed: chooses.
      longest: the most seconds that a pair lasts.
      window: seconds in which no node is struck more than three times.
    """

    def __init__(self, faults, seed, longest, window):
        self.chance = random.Random(seed)
        self.done = []
        self._faults, self._longest, self._window = faults, longest, window
        self._struck = collections.defaultdict(list)

    def strike(self, scene):
        """Does two faults at once."""
        first = self._choose()
        second = self._choose(unlike=first)
        self.done.append(" + ".join(f"{fault.__name__} {target}".strip() for fault, target in (first, second)))
        with contextlib.ExitStack() as stack:
            for fault, target in (first, second):
                # What was struck first may have ended, or not begun.
                with contextlib.suppress(ProcessLookupError, FileNotFoundError, IndexError):
                    stack.enter_context(fault(scene, target))
            time.sleep(self.chance.uniform(1.0, self._longest))

    def _choose(self, unlike=None):
        now = time.monotonic()
        since = now - self._window
        recent = {node for node, times in self._struck.items() if sum(at > since for at in times) >= MOST_DEATHS}
        possible = [
            (fault, target)
            for fault, target in self._faults
            # One cable is not disturbed twice at a time.
            if (fault, target) != unlike
            and not recent.intersection(_at_risk(fault, target))
            and not (unlike and {fault, unlike[0]} <= {cut, disturb} and target == unlike[1])
        ]
        fault, target = self.chance.choice(possible)
        for node in _at_risk(fault, target):
            self._struck[node].append(now)
        return fault, target


def _at_risk(fault, target):
    """The nodes that may die of a fault."""
    if fault is lose_machine:
        return NODES
    return (target,) if fault in (kill, stop) else ()
