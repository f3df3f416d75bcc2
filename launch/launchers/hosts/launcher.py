"""The hosts launcher: the nodes of a program spread over hosts, each of which supervises its own.

Every host runs the same command with the same cluster file.  What runs where, and at which addresses, follows from the
file alone.
"""

import contextlib
import dataclasses
import queue
import socket
import threading
import time
import uuid
from collections.abc import Iterator

import courier
import launchpad as lp

from ....data import CallboardError
from ...experiment import Run
from ...nodes.proxy_bypass import bypass_proxies
from ...package_versions import versions
from ...ports import reserve
from ...program import nodes_of
from ...run_directory.run_files import begun
from ...settings import settings_by_name
from ...stop_signals import stop_signals
from ..addresses import bind_addresses, port_of
from ..processes import run_nodes
from ..run_outcome import Monitor, Outcome
from ..supervisor import Event
from .cluster_file import Cluster
from .membership import HostMember, HostRegistry

_PORT_SECONDS = 10.0
_DIAL_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class HostsOptions:
    """Where this host stands among others.

    Attributes:
      cluster: the cluster file's content.
      host: the name of this host in it.
      allow_public: whether hosts may have addresses that everybody can reach.
    """

    cluster: Cluster
    host: str
    allow_public: bool = False

    @property
    def is_first(self) -> bool:
        """Whether the first learner, and with it the checkpoints, are here."""
        return self.host == self.cluster.first

    @property
    def learners(self) -> int:
        """Learners that run here."""
        return list(self.cluster.placement["learner"]).count(self.host)

    @property
    def replay_shards(self) -> list[int]:
        """The replay shards that are kept here."""
        return [shard for shard, host in enumerate(self.cluster.placement["replay"]) if host == self.host]

    def check(self) -> None:
        """Refuses a host that the cluster file does not name, and public addresses."""
        self.cluster.check_host(self.host)
        if not self.allow_public:
            self.cluster.check_addresses()


def run(program: lp.Program, run: Run, monitor: Monitor, options: HostsOptions) -> Outcome:
    """Runs this host's nodes of the program, to the end of the run on all hosts.

    Raises:
      CallboardError: this host may not take part, or cannot.
    """
    cluster, host = options.cluster, options.host
    bypass_proxies(*cluster.hosts.values())
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
            _refuse_another_first_host(cluster)
            meeting = HostRegistry(cluster, settings, events)
            server = courier.Server(port=port_of(cluster.meeting_address))
            server.Bind("attend", meeting.attend)
            server.Start()
        attendance = HostMember(cluster, host, life, settings, groups, events, meeting, run.directory.end_of_run)
        try:
            for node in nodes:
                for address in addresses[node.name]:
                    ports.reserve(address)
            outcome = _join(attendance, monitor)
            if outcome.ended:
                return outcome
            if not options.is_first:
                names = ", ".join(node.name for node in nodes)
                monitor.say(f"host {host}: joined the run of {cluster.first}, with {names}")
            with begun(run):
                attendance.start()
                own_ports = {node.name: port_of(addresses[node.name][0]) for node in nodes}
                try:
                    outcome = run_nodes(nodes, own_ports, run.directory, monitor, events, attendance)
                finally:
                    attendance.close()
            if options.is_first and outcome.exit_code == 0:
                run.directory.write_end_of_run(outcome.reason)
            return outcome
        finally:
            if server is not None:
                server.Stop()
                server.Join()


def _join(attendance: HostMember, monitor: Monitor) -> Outcome:
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
        self._reserved = contextlib.ExitStack()

    def __enter__(self) -> "_Ports":
        return self

    def reserve(self, address: str) -> None:
        """Reserves the port of an address.  What is left of a start that was killed has a moment to end."""
        port = port_of(address)
        advice = f"end what has it, or set other ports in {self._cluster.path}"
        # A port that is reserved, but on which nobody listens yet, would be shared with another run.
        self._reserved.enter_context(
            _locked(f"port {port}", f"the port {port} of host {self._host} belongs to another run: {advice}")
        )
        deadline = time.monotonic() + _PORT_SECONDS
        while True:
            try:
                self._reserved.callback(reserve(port).release)
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise CallboardError(
                        f"the port {port} of host {self._host} cannot be bound ({error.strerror}): {advice}"
                    ) from error
                time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        self._reserved.close()


@contextlib.contextmanager
def _locked(name: str, problem: str) -> Iterator[None]:
    """Holds a name that the kernel forgets with the process, and that other network namespaces do not see."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        try:
            lock.bind(f"\0callboard {name}")
        except OSError:
            raise CallboardError(problem) from None
        yield


def _refuse_another_first_host(cluster: Cluster) -> None:
    """Refuses to be the first host where that runs already, on the machine that the file means."""
    host, port = cluster.hosts[cluster.first], cluster.ports.start
    try:
        socket.create_connection((host, port), timeout=_DIAL_SECONDS).close()
    except OSError:
        return
    raise CallboardError(
        f"somebody answers at {cluster.meeting_address} already: if that is the host {cluster.first}, this machine is "
        "another one; else set other ports"
    )
