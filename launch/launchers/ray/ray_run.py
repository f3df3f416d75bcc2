"""Runs every node of a program as a Ray actor, on any machine of a cluster with sufficient resources.

Ray starts the processes, and restarts them elsewhere when they or their machines die.  The same supervisor as under the
other launchers decides how often a node may die, which nodes restart together, and in which order they end.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import queue
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import launchpad as lp
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ....environments import environment_text
from ....errors import CallboardError
from ....runtime.deadlines import Deadline, wait_until
from ....settings.own_files import digests_of, own_files
from ....settings.own_modules import searched_directories
from ...experiments.checked_run import Run
from ...experiments.parts.placement_part import PlacementPart
from ...experiments.run_files import begun
from ...node_names import kind_of
from ...nodes.node import LaunchedNode, ProgramNode
from ...nodes.progress import HEARTBEAT, NodeHeartbeat
from ...processes.devices import parse_devices
from ...processes.stop_signals import stop_signals
from ...program_nodes import nodes_of
from ..run_outcome import Monitor, Outcome
from ..supervision.supervisor import Event, Exit, Supervised, Supervisor
from .address_book import AddressExchange, BookedAddress
from .connection import END_SECONDS, connected, files_were_removed, session_directory
from .workers import Incarnation, RayNode

_CPUS = {"coordinator": 0.0}
# Ray rejects empty bundles, so a node without CPUs reserves this much memory, in bytes.
_SOME_MEMORY = 2**20
_PATIENCE_SECONDS = 10.0
_PROCESS_SECONDS = 300.0
"""Time in which Ray starts a process for which there is room; about 15 s on an idle machine."""
_POLL_SECONDS = 0.3
_GONE_SECONDS = 5.0
"""Time in which Ray's own process on a machine ends that goes, after those of the nodes."""
_ANSWER_SECONDS = 2.0
"""Time in which a machine accepts a connection."""
_REMOVE_SECONDS = 120.0
"""Time in which every machine starts a process that removes files; a second or two on an idle machine."""
# A Ray actor takes about 15 s to start, so the default window of 60 s could never be exceeded.
_RESTART_SECONDS = 600.0


class NodeGroup:
    """The Ray actors of a run's nodes, and the address book that they share.

    Args:
      program: the graph; its addresses are bound to the book.
      run: the run.
      bundles: resources of each node, in the order of the program's nodes.
      group: the placement group of those bundles, without those of `free` nodes.
      free: names of the nodes that Ray places one by one, whenever and wherever there is room.
    """

    def __init__(
        self,
        program: lp.Program,
        run: Run,
        bundles: Sequence[Mapping[str, float]],
        group: Any,
        free: Collection[str] = (),
    ):
        self.free = frozenset(free)
        self.run = run
        self.name = f"{environment_text(run.environment.env)}-{uuid.uuid4().hex[:6]}"
        self.scratch = f"callboard-{uuid.uuid4().hex}"
        self.exchange = AddressExchange(lambda to, entries: self.actors[to].update_addresses.remote(entries))
        self._group = group
        of_user = [vars(node) for node in program.get_all_nodes() if not isinstance(node, ProgramNode)]
        # What the program of the user defines itself is sent to the nodes.
        self.code = digests_of(own_files(run.experiment, of_user, with_program=False))
        nodes = [node for _, node in nodes_of(program)]
        for node in nodes:
            if node.rules.hosts is not None:
                # The machines of the nodes are in the address book.
                node.rules = dataclasses.replace(node.rules, hosts=(ray.util.get_node_ip_address(),))
            for index, address in enumerate(node.addresses):
                address.bind(BookedAddress(self.exchange.book, node.name, index))
        placed = itertools.count()
        self.actors = {
            name: RayNode.options(  # type: ignore[attr-defined]
                name=f"{self.name}:{name}",
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU", 0),
                memory=bundle.get("memory"),
                max_restarts=-1,
                max_task_retries=0,
                scheduling_strategy=(
                    "DEFAULT" if name in self.free else PlacementGroupSchedulingStrategy(group, next(placed))
                ),
            ).remote(name, sys.path, searched_directories())
            for name, bundle in zip([node.name for node in nodes], bundles, strict=True)
        }

    def pickled(self, node: LaunchedNode) -> bytes:
        """Returns the pickled arguments of a node's next incarnation, and sends its process the addresses in them."""
        return self.exchange.pickled(node.name, Incarnation(node, self.run, self.scratch))

    def remove_peer_addresses(self, name: str) -> None:
        """Removes the addresses of a node that has ended, so that its successor does not connect to those of others."""
        known = self.exchange.book.addresses(name)
        if len(known) > 1:
            self.exchange.enter(name, known[:1])

    def has_room(self) -> bool:
        """Returns whether the cluster has placed every node."""
        return placement_group_table(self._group).get("state") == "CREATED"

    def end(self) -> None:
        """Ends all actors, and waits until they are gone."""
        for actor in self.actors.values():
            ray.kill(actor, no_restart=True)
        names = {f"{self.name}:{name}" for name in self.actors}
        wait_until(lambda: names.isdisjoint(ray.util.list_named_actors()), END_SECONDS)
        if self.run.directory.url:
            self._remove_scratch()

    def _remove_scratch(self) -> None:
        """Removes the files that killed nodes left on the machines of the cluster."""
        # Sent by value: for a function of this module, every machine would have to import TensorFlow.
        remove: Any = ray.remote(num_cpus=0, max_retries=0)(
            lambda name: shutil.rmtree(os.path.join(tempfile.gettempdir(), name), ignore_errors=True)
        )
        machines = [machine["NodeID"] for machine in ray.nodes() if machine["Alive"]]
        removed = [
            remove.options(scheduling_strategy=NodeAffinitySchedulingStrategy(machine, soft=False)).remote(self.scratch)
            for machine in machines
        ]
        ray.wait(removed, num_returns=len(removed), timeout=_REMOVE_SECONDS)


class RayWorker:
    """One incarnation of a node, in a process of its Ray actor."""

    def __init__(self, node: LaunchedNode, node_group: NodeGroup, events: "queue.SimpleQueue[Event]"):
        self._node = node
        self._node_group = node_group
        self._actor: Any = node_group.actors[node.name]
        self._events = events
        self._stop_requested = threading.Event()
        self._killed = threading.Event()
        self._machine = ""
        """Ray's id of the machine on which the incarnation runs."""

    def start(self) -> None:
        threading.Thread(target=self._follow, name=f"messages of {self._node.name}", daemon=True).start()

    def stop(self) -> None:
        self._stop_requested.set()
        self._actor.stop.remote()

    def kill(self) -> None:
        self._killed.set()
        ray.kill(self._actor, no_restart=False)

    def _follow(self) -> None:
        """Runs the node and forwards its messages until the incarnation ends."""
        try:
            how = self._run_incarnation()
        except Exception as error:  # Where Ray itself fails, it also raises errors that are not its own.
            how = self._exit_by(error)
        self._node_group.remove_peer_addresses(self._node.name)
        self._send("exit", how)

    def _run_incarnation(self) -> Exit:
        if not self._wait_for_process():
            return Exit(clean=True, description="ended before it began")
        messages = self._actor.run.remote(self._node_group.pickled(self._node), self._node_group.code)
        if self._killed.is_set():
            # `kill` was called after the process was found to be free, so it may have taken effect before this
            # incarnation.
            ray.kill(self._actor, no_restart=False)
        for reference in messages:
            kind, content = ray.get(reference)
            if kind == "exit":
                return content
            if kind == "machine":
                self._machine = content
            elif kind == "addresses":
                self._node_group.exchange.enter(self._node.name, content)
            else:
                self._send(kind, content)
        return Exit(clean=False, description="ended without a message")

    def _wait_for_process(self) -> bool:
        """Waits for a process that has not run an incarnation yet; returns False if none is needed any more."""
        notice, latest, notified, ended = Deadline(_PATIENCE_SECONDS), Deadline(_PROCESS_SECONDS), False, set()
        answer = self._actor.past_incarnation.remote()
        while not (self._stop_requested.is_set() or self._killed.is_set()):
            # However long this takes, the node does not hang.
            self._send(HEARTBEAT, NodeHeartbeat(0, "waiting for a process in the cluster", "wait"))
            try:
                past_incarnation = ray.get(answer, timeout=_POLL_SECONDS)
                if not past_incarnation:
                    return True
                if past_incarnation not in ended:
                    ended.add(past_incarnation)
                    ray.kill(self._actor, no_restart=False)
            except GetTimeoutError:
                if self._node.name in self._node_group.free:
                    continue
                if not self._node_group.has_room():
                    latest.restart()
                    if notice.has_passed and not notified:
                        notified = True
                        self._send("message", "waits for room in the cluster")
                elif latest.has_passed or (notice.has_passed and files_were_removed()):
                    raise CallboardError(_no_process()) from None
                continue
            except ActorDiedError:
                raise
            except RayActorError:
                pass  # Its process is being restarted.
            time.sleep(_POLL_SECONDS)
            answer = self._actor.past_incarnation.remote()
        return False

    def _exit_by(self, error: Exception) -> Exit:
        if self._stop_requested.is_set() and not self._node.rules.keeps:
            # A node that saves nothing may be stopped at any time.
            return Exit(clean=True, description="ended")
        if self._killed.is_set():
            return Exit(clean=False, description="killed")
        if isinstance(error, CallboardError):
            return Exit(clean=False, description=str(error), error=str(error), final=True)
        if isinstance(error, RayActorError) and not isinstance(error, ActorDiedError):
            if self._node.name in self._node_group.free and wait_until(self._is_without_machine, _GONE_SECONDS):
                return Exit(clean=False, description="its machine has gone", gone=True)
            return Exit(clean=False, description="its process or its machine has died")
        return Exit(clean=False, description="its Ray actor has failed", error=str(error), final=True)

    def _is_without_machine(self) -> bool:
        machines = [machine for machine in ray.nodes() if machine["NodeID"] == self._machine]
        return bool(self._machine) and not any(map(_is_there, machines))

    def _send(self, kind: str, content: Any) -> None:
        self._events.put(Event(self._node.name, kind, content))


def _is_there(machine: Mapping[str, Any]) -> bool:
    """Whether a machine, an element of `ray.nodes()`, accepts connections; Ray notices that one has gone much later."""
    if not machine["Alive"]:
        return False
    try:
        socket.create_connection((machine["NodeManagerAddress"], machine["NodeManagerPort"]), _ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def run(
    program: lp.Program,
    run: Run,
    monitor: Monitor,
    address: str | None,
    cpus: Mapping[str, float],
    gpus: Mapping[str, float],
    strategy: str,
    wait: int,
) -> Outcome:
    """Runs the program to its end on a Ray cluster.

    The output of each node goes to its own file under `logs/`.

    Args:
      program: the nodes.
      run: the run.
      monitor: receives status and messages.
      address: address of the cluster; None finds or starts one.
      cpus: CPUs reserved for each node, by kind of node.
      gpus: GPUs reserved for each node, by kind of node.
      strategy: how nodes are placed on machines.
      wait: seconds to wait for free resources.

    Raises:
      CallboardError: there is no such cluster, or it does not have enough resources.
    """
    outcome = Outcome()
    in_main_thread = threading.current_thread() is threading.main_thread()

    def leave(signal_number: int) -> None:
        # Once the run is over, only the clean-up is left, which must not be interrupted.
        if not outcome.ended:
            outcome.interrupted(signal_number)
            if in_main_thread:
                raise KeyboardInterrupt

    def leave_if_interrupted() -> None:
        # In another thread, a signal is handled by the one that sends it.
        if outcome.ended:
            raise KeyboardInterrupt

    names = [node.name for _, node in nodes_of(program)]
    # Actors that come and go are placed one by one, whenever and wherever there is room.
    free = {name for name in names if run.placement.min_actors is not None and kind_of(name) == "actor"}
    spare = {f"actor/{index}" for index in range(run.placement.min_actors or 0, run.placement.actors)} & free

    def without(left_out: Collection[str], bundles: Sequence[dict[str, float]]) -> list[dict[str, float]]:
        return [bundle for name, bundle in zip(names, bundles, strict=True) if name not in left_out]

    needed = without(spare, bundles_of(program, run.placement, cpus, gpus, has_gpus=False))
    processors = sum(bundle.get("CPU", 0.0) for bundle in needed)
    try:
        # While the nodes run, the supervisor handles the signals.
        with stop_signals(leave), connected(address, math.ceil(processors), leave_if_interrupted):
            leave_if_interrupted()
            has_gpus = ray.cluster_resources().get("GPU", 0) > 0
            bundles = bundles_of(program, run.placement, cpus, gpus, has_gpus)
            with _placed(without(free, bundles), strategy, wait, monitor, leave_if_interrupted) as group, begun(run):
                outcome.adopt(_supervise(program, run, monitor, bundles, group, free))
    except KeyboardInterrupt:
        if not outcome.ended:
            raise
    return outcome


def _supervise(
    program: lp.Program,
    run: Run,
    monitor: Monitor,
    bundles: Sequence[Mapping[str, float]],
    group: Any,
    free: Collection[str],
) -> Outcome:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    node_group = NodeGroup(program, run, bundles, group, free)
    try:
        nodes = [
            Supervised(
                node.name,
                dataclasses.replace(node.rules, restart_window=_RESTART_SECONDS),
                functools.partial(RayWorker, node, node_group, events),
            )
            for _, node in nodes_of(program)
        ]
        return Supervisor(nodes, events, monitor).run()
    finally:
        node_group.end()


def bundles_of(
    program: lp.Program,
    placement: PlacementPart,
    cpus: Mapping[str, float],
    gpus: Mapping[str, float],
    has_gpus: bool,
) -> list[dict[str, float]]:
    """Returns the resources of each node, in the order of the program's nodes.

    A learner with one device takes a GPU if the cluster has any.  Ray chooses which one; in the learner's process it is
    `GPU:0`.  An inference node takes one if the cluster has any.  `gpus` takes precedence, also where there are none.
    """
    devices = parse_devices(placement.learner_devices)
    on_processor = devices.kind == "CPU" or (devices.number == 1 and not has_gpus)
    of_kind: dict[str, float] = {
        "learner": 0.0 if on_processor else float(devices.device_count()),
        "inference": float(has_gpus),
        **gpus,
    }
    bundles = []
    for label, _ in nodes_of(program):
        processors = cpus.get(label, _CPUS.get(label, 1.0))
        bundle = {"CPU": processors, "GPU": of_kind.get(label, 0.0)}
        if not any(bundle.values()):
            bundle = {"memory": float(_SOME_MEMORY)}
        bundles.append({name: amount for name, amount in bundle.items() if amount})
    return bundles


@contextlib.contextmanager
def _placed(
    bundles: Sequence[dict[str, float]],
    strategy: str,
    wait: int,
    monitor: Monitor,
    leave_if_interrupted: Callable[[], None],
) -> Iterator[Any]:
    """Creates a placement group of these bundles, and removes it afterwards."""
    group = placement_group(list(bundles), strategy=strategy)

    def is_placed() -> bool:
        # One second at a time, because signals are handled only between the calls.
        leave_if_interrupted()
        return group.wait(1)

    try:
        if not is_placed():
            monitor.notify(f"waits up to {wait} s for room in the cluster")
            if not wait_until(is_placed, wait, interval=0.0):
                raise CallboardError(_no_room(bundles, strategy))
        yield group
    finally:
        remove_placement_group(group)
        wait_until(lambda: placement_group_table(group).get("state", "REMOVED") == "REMOVED", END_SECONDS)


def _no_process() -> str:
    directory = session_directory()
    if files_were_removed():
        return (
            f"Ray can start no process, because files in its directory {directory} were removed; restart Ray, and let "
            "nothing remove files there during a run"
        )
    return (
        f"Ray has started no process within {_PROCESS_SECONDS:.0f} s, though the cluster has room; look for the cause "
        f"in {directory / 'logs'}"
    )


def _no_room(bundles: Sequence[Mapping[str, float]], strategy: str) -> str:
    def of(resources: Mapping[str, float]) -> str:
        return " and ".join(f"{resources.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))

    needs = {name: sum(bundle.get(name, 0.0) for bundle in bundles) for name in ("CPU", "GPU")}
    machines = sum(node["Alive"] for node in ray.nodes())
    return (
        f"the Ray cluster has no room for the run: its {len(bundles)} nodes need {of(needs)} (placed by "
        f"{strategy}), and {machines} machine(s) have {of(ray.cluster_resources())}, of which "
        f"{of(ray.available_resources())} are free; take fewer actors, less for each (--ray-cpus.actor 0.5), or add "
        "machines"
    )
