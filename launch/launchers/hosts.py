"""The hosts launcher: the nodes of a program spread over hosts, each of which supervises its own.

Every host runs the same command with the same cluster file.  What runs where, and at which addresses, follows from the
file alone.
"""

import dataclasses
import os
import queue
import socket
import threading
import time
import uuid

import courier
import launchpad as lp

from ...data import CallboardError
from ..cluster import Cluster
from ..experiment import Run
from ..program import nodes_of
from ..settings import settings_by_name, write_experiment
from ..versions import versions
from .addresses import ReservedPort, bind_addresses, port_of, reserve
from .meeting import Attendance, Meeting
from .outcome import Monitor, Outcome, stop_signals
from .processes import run_nodes
from .supervisor import Event

_PORT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class HostsOptions:
    """Where this host stands among others.

    Attributes:
      cluster: the cluster file's content.
      host: the name of this host in it.
    """

    cluster: Cluster
    host: str

    @property
    def is_first(self) -> bool:
        """Whether the first learner, and with it the checkpoints, are here."""
        return self.host == self.cluster.first

    @property
    def learners(self) -> int:
        """Learners that run here."""
        return list(self.cluster.placement["learner"]).count(self.host)


def run(program: lp.Program, run: Run, monitor: Monitor, options: HostsOptions) -> Outcome:
    """Runs this host's nodes of the program, to the end of the run on all hosts.

    Raises:
      CallboardError: this host may not take part, or cannot.
    """
    cluster, host = options.cluster, options.host
    # gRPC would send what is for other hosts through a proxy, where there is one.
    environment = {"no_grpc_proxy": ",".join(["localhost", "127.0.0.1", *cluster.hosts.values()])}
    os.environ.update(environment)
    addresses = cluster.addresses(program)
    bind_addresses(program, addresses)
    nodes = [node for _, node in nodes_of(program) if cluster.host_of(node.name) == host]
    life = uuid.uuid4().hex
    settings = {**settings_by_name(run.experiment), **cluster.settings(), **versions()}
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    groups = {node.policy.restart_group for node in nodes} - {""}
    with _Ports(cluster, host) as ports:
        server = None
        meeting = None
        if options.is_first:
            ports.reserve(cluster.meeting_address)
            meeting = Meeting(cluster, settings, events)
            server = courier.Server(port=port_of(cluster.meeting_address))
            server.Bind("attend", meeting.attend)
            server.Start()
        attendance = Attendance(cluster, host, life, settings, groups, events, meeting, run.directory.end_of_run)
        try:
            for node in nodes:
                for address in addresses[node.name]:
                    ports.reserve(address)
            outcome = _join(attendance, monitor)
            if outcome.ended:
                return outcome
            if not run.directory.experiment.exists():
                run.directory.create()
                write_experiment(run.experiment, run.directory.experiment)
            if not options.is_first:
                names = ", ".join(node.name for node in nodes)
                monitor.say(f"host {host}: joined the run of {cluster.first}, with {names}")
            attendance.start()
            own_ports = {node.name: port_of(addresses[node.name][0]) for node in nodes}
            try:
                outcome = run_nodes(nodes, own_ports, run.directory, monitor, events, attendance, environment)
            finally:
                attendance.close()
            if options.is_first and outcome.exit_code == 0:
                run.directory.write_end_of_run(outcome.reason)
            return outcome
        finally:
            if server is not None:
                server.Stop()
                server.Join()


def _join(attendance: Attendance, monitor: Monitor) -> Outcome:
    """Waits to be let in; the outcome has ended if a signal came before."""
    outcome, stopped = Outcome(), threading.Event()

    def interrupt(number: int) -> None:
        outcome.interrupted(number)
        stopped.set()

    with stop_signals(interrupt):
        attendance.join(monitor, stopped)
    return outcome


class _Ports:
    """The ports of this host, which are given, and so may be taken."""

    def __init__(self, cluster: Cluster, host: str):
        self._cluster = cluster
        self._host = host
        self._reserved: list[ReservedPort] = []
        self._lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> "_Ports":
        # A name that the kernel forgets with the process, and that no other network namespace sees: reserved ports on
        # which nobody listens yet would not be noticed by a second start.
        try:
            self._lock.bind(f"\0callboard-{self._host}-{self._cluster.ports.start}")
        except OSError:
            raise CallboardError(
                f"another callboard runs here as the host {self._host} with the same ports: end it first, or give "
                f"one of them other ports than {self._cluster.ports.start}-{self._cluster.ports.stop - 1}"
            ) from None
        return self

    def reserve(self, address: str) -> None:
        """Reserves the port of an address.  What is left of a start that was killed has a moment to end."""
        deadline = time.monotonic() + _PORT_SECONDS
        while True:
            try:
                self._reserved.append(reserve(port_of(address)))
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise CallboardError(
                        f"the port {port_of(address)} of host {self._host} cannot be bound ({error.strerror}): end "
                        f"what listens there, or set other ports in {self._cluster.path}"
                    ) from error
                time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        for port in self._reserved:
            port.release()
        self._lock.close()
