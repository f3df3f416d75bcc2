"""Runs the nodes of one of several hosts, each of which supervises its own nodes.

Every host runs the same command with the same cluster file.  The placement of nodes and their addresses follow from the
file alone.
"""

import contextlib
import dataclasses
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import courier
import launchpad as lp

from ....errors import CallboardError, counted
from ....messages.caller_words import argument
from ....runtime.deadlines import Deadline, retry
from ...experiments.checked_run import Run
from ...experiments.run_files import begun
from ...nodes.node import ProgramNode
from ...nodes.proxy_bypass import bypass_proxies
from ...processes.listen_filter import PortGuard, TooManyHosts, filter_program, resolved
from ...processes.package_versions import versions
from ...processes.ports import reserve
from ...processes.stop_signals import stop_signals
from ...program_nodes import nodes_of
from ...run_directory.layout import RunDirectory
from ...serving.access_token import make_token
from ..addresses import bind_addresses, first_port, port_of
from ..gpu_placement import place_on_gpus
from ..processes import run_nodes
from ..run_outcome import Monitor, Outcome
from ..supervision.supervisor import Event
from .cluster_file import Cluster
from .guests import Door, GuestList, GuestPlace, NotAdmitted, knock
from .host_member import HostMember
from .membership import HostTable
from .shared_settings import shared_code, shared_settings
from .ssh_tunnels import check_tunnels, ssh_tunnels

_CALL_SECONDS = 3.0
_PORT_SECONDS = 10.0
_DIAL_SECONDS = 1.0
_DIRECTORY_SECONDS = 2.0
_NAME_SECONDS = 20.0
_LOOK_UP_SECONDS = 0.5
_NOTICE_SECONDS = 5.0


def run(
    program: lp.Program,
    run: Run,
    monitor: Monitor,
    cluster: Cluster,
    host: str,
    token: str | None = None,
    allow_public: bool = False,
) -> Outcome:
    """Runs this host's nodes of the program until the run has ended on all hosts.

    Args:
      program: the nodes of all hosts.
      run: the run.
      monitor: receives status and messages.
      cluster: the hosts, and the nodes of each.
      host: the name of this host.
      token: the token of the run, where guests may join; None for the first host to make one.
      allow_public: whether machines with public addresses may join.

    Raises:
      CallboardError: this host was rejected or cannot take part.
    """
    cluster = dataclasses.replace(cluster, actors_come_and_go=run.placement.min_actors is not None)
    is_first = host == cluster.first
    outside = cluster
    guest = None
    if host not in cluster.hosts:
        guest = _Guest(cluster, host, token or "")
        place = guest.enter(monitor)
        if place is None:
            return guest.outcome
        cluster = cluster.with_guest(host, place.address, place.actors)
    _check_names(cluster, host, monitor)
    if cluster.tunnel:
        check_tunnels(outside, host)
        cluster = outside.inside_tunnels()
    bypass_proxies(*cluster.hosts.values())
    addresses = cluster.addresses(program)
    bind_addresses(program, addresses)
    nodes = [node for _, node in nodes_of(program) if cluster.host_of(node.name) == host]
    _check_filter(cluster, run.output.listen)
    named = tuple(cluster.hosts.values())
    guard = PortGuard(None if run.output.listen == "all" else tuple(cluster.hosts.values()))
    for node in nodes:
        if node.rules.hosts is not None:
            node.rules = dataclasses.replace(node.rules, hosts=tuple(cluster.hosts.values()))
    place_on_gpus(nodes, run.placement.learner_devices)
    of_user = [vars(node) for node in program.get_all_nodes() if not isinstance(node, ProgramNode)]
    code = shared_code(run.experiment, of_user)
    settings = {**shared_settings(run.experiment), **outside.settings(), **versions(), **code}
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    groups = {node.rules.restart_group for node in nodes} - {""}
    end_of_run = _end_of_this_run(run.directory)
    with _Ports(cluster, host) as ports, contextlib.ExitStack() as stack:
        if is_first:
            ports.reserve(cluster.membership_address)
            _refuse_another_first_host(cluster)
            table = HostTable(cluster, settings, events)
            stack.enter_context(_served(table, port_of(cluster.membership_address), guard))
            if cluster.guests is not None:

                def let_in(addresses: Collection[str]) -> None:
                    if run.output.listen == "all":
                        return
                    hosts = (*named, *sorted(addresses))
                    guard.allow(hosts)
                    for node in nodes:
                        # Also for incarnations that follow.
                        node.rules = dataclasses.replace(node.rules, hosts=hosts)
                    events.put(Event("", "hosts", hosts))

                table.guests = GuestList(cluster, run.placement.actors, table.is_present, let_in, allow_public)
                token = token or make_token(run.directory.path / "join-token")
                stack.callback(Door(cluster.door_address[1], token, table.guests.admit).close)
                monitor.notify(
                    f"machines may join with the token in {run.directory.path / 'join-token'}, each with "
                    f"{counted(cluster.guests.actors, 'actor')}"
                )
        if outside.tunnel:
            stack.enter_context(ssh_tunnels(outside, host, _ports_by_host(cluster, addresses), monitor.notify))
        member = HostMember(
            cluster,
            host,
            settings,
            groups,
            events,
            connect=lambda: table if is_first else _client(cluster.membership_address, guest),
            end_of_run=end_of_run,
        )
        for node in nodes:
            for address in addresses[node.name]:
                ports.reserve(address)
        outcome = _join(member, monitor)
        if outcome.ended:
            return outcome
        if is_first:
            run.directory.resume()
        else:
            names = ", ".join(node.name for node in nodes)
            monitor.notify(f"host {host}: joined the run of {cluster.first}, with {names}")
        with begun(run):
            member.start()
            stack.enter_context(_watched(run.directory, host, events))
            own_ports = {node.name: first_port(addresses[node.name]) for node in nodes}
            try:
                outcome = run_nodes(nodes, own_ports, run.directory, monitor, events, member)
            finally:
                member.close()
        if is_first and outcome.exit_code == 0:
            run.directory.write_end_of_run(outcome.reason)
        return outcome


def _ports_by_host(cluster: Cluster, addresses: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Returns the ports on which each host listens."""
    ports = {cluster.first: [port_of(cluster.membership_address)]}
    for node, of_node in addresses.items():
        ports.setdefault(cluster.host_of(node), []).extend(map(port_of, of_node))
    return ports


def _check_filter(cluster: Cluster, listen: str) -> None:
    """Raises `CallboardError` if the hosts are too many for the filter that closes the ports to other machines."""
    try:
        filter_program([] if listen == "all" else resolved(list(cluster.hosts.values())))
    except TooManyHosts as error:
        advice = f"guard the ports with a firewall and give {argument('listen', 'all')}"
        raise CallboardError(f"{error}; {advice}") from error


def _check_names(cluster: Cluster, host: str, monitor: Monitor) -> None:
    """Refuses names of machines that are not known, which would be left out of the run without a word.

    Another host than this one and the first may be started later, and its name may be unknown until then.

    Raises:
      CallboardError: the name of this host or of the first one cannot be looked up.
    """
    needed = {host: cluster.hosts[host], cluster.first: cluster.hosts[cluster.first]}
    deadline = Deadline(_NAME_SECONDS)
    while unknown := {name: address for name, address in needed.items() if not resolved([address])}:
        if deadline.has_passed:
            name, address = next(iter(unknown.items()))
            raise CallboardError(
                f"{cluster.path}: the name {address!r} of host {name} cannot be looked up; correct it, or use an "
                "IP address"
            )
        time.sleep(_LOOK_UP_SECONDS)
    for name, address in cluster.hosts.items():
        if name not in needed and not resolved([address]):
            monitor.notify(
                f"the name {address!r} of host {name} cannot be looked up; it can join as soon as it is known here"
            )


def _end_of_this_run(directory: RunDirectory) -> Callable[[], str]:
    """Returns a function that returns why the run has ended; empty if it has not.

    The directory of a run that is being resumed contains its former end, until the first host has started.
    """
    before = directory.end_of_run()

    def end_of_run() -> str:
        reason = directory.end_of_run()
        return "" if reason == before else reason

    return end_of_run


@contextlib.contextmanager
def _watched(directory: RunDirectory, host: str, events: "queue.SimpleQueue[Event]") -> Iterator[None]:
    """Ends the run if this host's directory was renamed, deleted or replaced; the coordinator's may be another one."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_DIRECTORY_SECONDS):
            try:
                directory.check_same()
            except CallboardError as error:
                events.put(Event("", "failed", (f"host {host}", str(error))))
                return

    threading.Thread(target=watch, name="directory-watch", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextlib.contextmanager
def _served(table: HostTable, port: int, guard: PortGuard) -> Iterator[None]:
    """Serves the table of hosts to the other hosts."""
    server = courier.Server(port=port)
    server.Bind("heartbeat", table.heartbeat)
    server.Start()
    guard.close(port)
    try:
        yield
    finally:
        server.Stop()
        server.Join()


class _Guest:
    """This machine, if the cluster file does not name it: it shows the token before it joins, and to come back."""

    def __init__(self, cluster: Cluster, host: str, token: str):
        self._cluster = cluster
        self._host = host
        self._token = token
        self._place: GuestPlace | None = None
        self.outcome = Outcome()

    def enter(self, monitor: Monitor) -> GuestPlace | None:
        """Waits for a place; returns None if a signal arrived first, see `outcome`.

        Raises:
          CallboardError: this machine was refused, or the first host does not answer.
        """
        patience, notice = Deadline(self._cluster.patience), Deadline(_NOTICE_SECONDS)
        with _interruptible() as (self.outcome, stopped):
            while not stopped.is_set():
                try:
                    return self.knock()
                except OSError as error:
                    address, port = self._cluster.door_address
                    problem = f"the host {self._cluster.first} does not answer at {address}:{port} ({error})"
                if patience.has_passed:
                    raise CallboardError(f"{problem}, for {self._cluster.patience:.0f} s; is the run there?")
                if notice.has_passed:
                    notice.restart(self._cluster.patience)
                    monitor.notify(f"{problem}; waiting for up to {self._cluster.patience:.0f} s")
                stopped.wait(_LOOK_UP_SECONDS)
        return None

    def knock(self) -> GuestPlace:
        """Shows the token; returns the same place as before, if there was one.

        Raises:
          CallboardError: this machine was refused, or its actors were given to others.
          OSError: the first host does not answer.
        """
        held = () if self._place is None else self._place.actors
        place = knock(self._cluster.door_address, self._token, self._host, held)
        if self._place is not None and list(place.actors) != list(held):
            raise NotAdmitted("its actors were given to another machine while it was away: start it again")
        self._place = place
        return place


def _client(address: str, guest: _Guest | None = None) -> Any:
    """Returns a client of the first host's table."""
    if guest is not None:
        with contextlib.suppress(OSError):  # The next call fails, too.
            guest.knock()
    return courier.Client(address, call_timeout=_CALL_SECONDS)


def _join(member: HostMember, monitor: Monitor) -> Outcome:
    """Waits until this host is admitted; the returned outcome has ended if a signal arrived first."""
    with _interruptible() as (outcome, stopped):
        member.join(monitor, stopped)
    return outcome


@contextlib.contextmanager
def _interruptible() -> Iterator[tuple[Outcome, threading.Event]]:
    """Yields an outcome that the first signal decides within the context, and an event that is set then."""
    outcome, stopped = Outcome(), threading.Event()

    def interrupt(number: int) -> None:
        outcome.interrupted(number)
        stopped.set()

    with stop_signals(interrupt):
        yield outcome, stopped


class _Ports:
    """The ports of this host.  They are fixed by the cluster file, so another program may be using them."""

    def __init__(self, cluster: Cluster, host: str):
        self._cluster = cluster
        self._host = host
        self._reserved = contextlib.ExitStack()

    def __enter__(self) -> "_Ports":
        return self

    def reserve(self, address: str) -> None:
        """Reserves the port of an address.  Processes of a start that was killed have a moment to end."""
        port = port_of(address)
        advice = f"end the program that has it, or set other ports in {self._cluster.path}"
        # Without the lock, another run could also reserve a port that is reserved but not yet listened on.
        self._reserved.enter_context(
            _locked(f"port {port}", f"the port {port} of host {self._host} belongs to another run; {advice}")
        )
        try:
            self._reserved.callback(retry(lambda: reserve(port), OSError, _PORT_SECONDS).release)
        except OSError as error:
            raise CallboardError(
                f"the port {port} of host {self._host} cannot be bound ({error.strerror}); {advice}"
            ) from error

    def __exit__(self, *_: object) -> None:
        self._reserved.close()


@contextlib.contextmanager
def _locked(name: str, problem: str) -> Iterator[None]:
    """Holds a lock on a name.  The kernel releases it when the process ends; it applies to one network namespace."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        try:
            lock.bind(f"\0callboard {name}")
        except OSError:
            raise CallboardError(problem) from None
        yield


def _refuse_another_first_host(cluster: Cluster) -> None:
    """Raises `CallboardError` if the first host already runs on the machine that the cluster file names."""
    host, port = cluster.hosts[cluster.first], cluster.ports.start
    if cluster.guests is not None and not cluster.is_here(cluster.first):
        # Its ports are closed to a machine that is no guest yet, which cannot find out whether it runs.
        raise CallboardError(
            f"{host}, the address of the host {cluster.first}, is not one of this machine's: to join the run, take a "
            f"name that is not in {cluster.path}"
        )
    try:
        socket.create_connection((host, port), timeout=_DIAL_SECONDS).close()
    except OSError:
        return
    raise CallboardError(
        f"a program already listens at {cluster.membership_address}; if it is the host {cluster.first} of this run, "
        "start this machine under its own name; otherwise set other ports"
    )
