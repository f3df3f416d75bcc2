"""Membership of the hosts of a run: they compare settings, agree on the end, and detect hosts that do not respond.

The first host, with the first learner and the coordinator, serves the registry.  Every host, including the first, calls
it twice a second.  Each call carries the complete state of its host, so that a lost or repeated call does no harm, and
a restarted first host has all information again after one round of calls.
"""

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import courier
from courier.python.client import StatusNotOk

from ....errors import CallboardError
from ..run_outcome import Monitor, Outcome, error_text
from ..supervisor import Event
from .cluster_file import Cluster

_BEAT_SECONDS = 0.5
_CALL_SECONDS = 3.0
_SILENT_SECONDS = 10.0
_LATE_SECONDS = 15.0
_REMIND_SECONDS = 60.0
_SHOWN_DIFFERENCES = 3
_ALL_STOPPED = 1000
_PROTOCOL = 1
"""Version of the protocol between hosts; increment it with every change of `HostState` or `Answer`."""
_OTHER_VERSION = "runs another version of Callboard: install the same version on every host"
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELED")


class Answer(NamedTuple):
    """The registry's reply to a host."""

    refusal: str
    """Why the host may not take part, or empty."""
    present: bool
    """False while another host of that name has been heard from recently."""
    turn: int
    """The highest stop order whose nodes may be stopped; -1 while the run continues."""
    ending: dict[str, Any] | None
    """The fields of the `Outcome` with which the run ends."""
    others: dict[str, dict[str, list[int]]]
    """For every other host that responds, its `Generation` of each restart group."""
    came_back: bool
    """Whether an earlier incarnation of the host has been a member."""


class HostState(NamedTuple):
    """What a host reports with every call."""

    host: str
    """Name of the host."""
    life: str
    """Id of the host's incarnation, different at every start."""
    settings: dict[str, str]
    """Settings that it was started with."""
    stopped: int
    """The highest stop order up to which all its nodes have ended; -1 while they run."""
    generations: dict[str, list[int]]
    """Its `Generation` of each restart group that has nodes on this host."""
    failure: list[str] | None
    """The node that failed for good and its error."""


class Generation(NamedTuple):
    """How often a restart group has been restarted, according to one host."""

    wanted: int
    """The highest number of restarts that the host has seen."""
    ended: int
    """The highest restart number for which all earlier nodes of the group on this host have ended."""


@dataclasses.dataclass
class _Attendant:
    """What the registry stores about a host."""

    life: str
    heard: float
    came_back: bool = False
    stopped: int = -1
    generations: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    silent: bool = False


class HostRegistry:
    """The state of all hosts, kept by the first host.

    Args:
      cluster: the hosts.
      settings: settings of the first host, which must be the same on the others.
      events: the queue of the first host's supervisor.
    """

    def __init__(self, cluster: Cluster, settings: Mapping[str, str], events: "queue.SimpleQueue[Event]"):
        self._cluster = cluster
        self._settings = dict(settings)
        self._events = events
        self._lock = threading.Lock()
        self._hosts: dict[str, _Attendant] = {}
        self._refused: set[str] = set()
        self._ending: dict[str, Any] | None = None
        self._begun = time.monotonic()
        self._next_reminder = self._begun + _LATE_SECONDS

    def attend(self, protocol: Any, *state: Any) -> tuple[int, tuple[Any, ...]]:
        """Handle the call of a host.

        Args:
          protocol: the host's `_PROTOCOL`; a host of another version may send anything here.
          *state: the fields of a `HostState`.

        Returns:
          `_PROTOCOL` and the fields of an `Answer`.
        """
        if protocol != _PROTOCOL or len(state) != len(HostState._fields):
            self._refuse_once("of another version", "it " + _OTHER_VERSION)
            return _PROTOCOL, tuple(Answer(f"this host {_OTHER_VERSION}", False, -1, None, {}, False))
        return _PROTOCOL, tuple(self._answer(HostState(*state)))

    def _refuse_once(self, host: str, why: str) -> None:
        if host not in self._refused:
            self._refused.add(host)
            self._say(f"refused, because {why}", host)

    def _answer(self, state: HostState) -> Answer:
        host, life, settings, stopped, generations, failure = state
        with self._lock:
            differences = _differences(host, settings, self._cluster.first, self._settings)
            if differences:
                self._refuse_once(host, differences)
                return Answer(differences, False, -1, None, {}, False)
            now = time.monotonic()
            known = self._hosts.get(host)
            if known is None:
                known = self._hosts[host] = _Attendant(life, now)
                if host != self._cluster.first:
                    self._say(f"joined the run, from {self._cluster.hosts[host]}", host)
            elif known.life != life:
                if now - known.heard < _SILENT_SECONDS and known.stopped < _ALL_STOPPED:
                    return Answer("", False, -1, None, {}, False)
                self._say("came back", host)
                self._hosts[host] = known = _Attendant(life, now, came_back=True)
            elif known.silent:
                self._say("is heard again", host)
            known.heard, known.silent = now, False
            known.stopped, known.generations = max(known.stopped, stopped), generations
            if failure is not None and (self._ending is None or self._ending["failed_node"] is None):
                self._events.put(Event("", "failed", (f"{failure[0]} on {host}", failure[1])))
            others = {
                name: attendant.generations
                for name, attendant in self._hosts.items()
                if name != host and now - attendant.heard < _SILENT_SECONDS
            }
            return Answer("", True, self._turn(now), self._ending, others, known.came_back)

    def end(self, outcome: Outcome) -> None:
        """Announce to all hosts how the run ends."""
        with self._lock:
            self._ending = dataclasses.asdict(outcome)

    def look_round(self) -> None:
        """Report hosts that have not joined and hosts that have stopped responding."""
        with self._lock:
            now = time.monotonic()
            for name, attendant in self._hosts.items():
                if now - attendant.heard > _SILENT_SECONDS and not attendant.silent:
                    attendant.silent = True
                    if attendant.stopped < _ALL_STOPPED:
                        self._say(
                            f"at {self._cluster.hosts[name]}, has not been heard for {_SILENT_SECONDS:.0f} s", name
                        )
            if now >= self._next_reminder:
                self._next_reminder = now + _REMIND_SECONDS
                for name in set(self._cluster.used_hosts) - set(self._hosts):
                    self._say(
                        f"at {self._cluster.hosts[name]}, has not joined yet: is the command running there?", name
                    )

    def _turn(self, now: float) -> int:
        if self._ending is None:
            return -1
        present = [attendant for attendant in self._hosts.values() if now - attendant.heard < _SILENT_SECONDS]
        return 1 + min((attendant.stopped for attendant in present), default=_ALL_STOPPED)

    def _say(self, text: str, host: str) -> None:
        self._events.put(Event(f"host {host}", "say", text))


class HostMember:
    """A host's membership, used by its supervisor (`supervisor.OtherHosts`).

    Args:
      cluster: the hosts.
      host: the name of this host.
      life: id of this host's incarnation, different at every start.
      settings: the settings that it was started with.
      groups: the restart groups of its nodes.
      events: the queue of its supervisor.
      meeting: the registry, if this process serves it.
      end_of_run: returns why the run has ended, if the run directory is shared and contains it; otherwise empty.
    """

    def __init__(
        self,
        cluster: Cluster,
        host: str,
        life: str,
        settings: Mapping[str, str],
        groups: set[str],
        events: "queue.SimpleQueue[Event]",
        meeting: HostRegistry | None,
        end_of_run: Callable[[], str],
    ):
        self._cluster = cluster
        self._host = host
        self._life = life
        self._settings = dict(settings)
        self._events = events
        self._meeting = meeting
        self._end_of_run = end_of_run
        self._client: Any = meeting or self._connect()
        self._stopped = -1
        self._generations = {group: Generation(0, 0) for group in groups}
        self._others: dict[str, dict[str, list[int]]] = {}
        self._generations_lock = threading.Lock()
        self._failure: list[str] | None = None
        self._turn = -1
        self._leaving = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._attend_for_ever, name="meeting", daemon=True)

    def join(self, monitor: Monitor, stopped: threading.Event) -> bool:
        """Wait until this host may take part; return False if it was stopped first.

        Raises:
          CallboardError: the host was rejected, or the first host did not respond.
        """
        first, address = self._cluster.first, self._cluster.meeting_address
        begun = time.monotonic()
        reminder = begun + _LATE_SECONDS
        while not stopped.is_set():
            answer = self._attend()
            if answer is not None and answer.refusal:
                raise CallboardError(answer.refusal)
            if answer is not None and answer.present:
                if answer.came_back:
                    # The nodes of other hosts were connected to those of the previous incarnation.
                    for group in self._generations:
                        newest = max([0, *self._wanted_elsewhere(answer.others, group)])
                        self._generations[group] = Generation(newest + 1, newest + 1)
                self._take(answer)
                return True
            if answer is None and self._end_of_run():
                raise CallboardError(f"the run has ended: {self._end_of_run()}")
            problem = (
                f"another host calls itself {self._host}"
                if answer is not None
                else f"the host {first} does not answer at {address}"
            )
            now = time.monotonic()
            if now - begun > self._cluster.patience:
                raise CallboardError(
                    f"{problem}, for {self._cluster.patience:.0f} s: start the same command on {first}, and see "
                    f"callboard cluster check {self._cluster.path} --host {self._host}"
                )
            if now > reminder:
                reminder = now + _REMIND_SECONDS
                monitor.say(f"{problem}; waiting for up to {self._cluster.patience:.0f} s")
            stopped.wait(_BEAT_SECONDS)
        return False

    def start(self) -> None:
        """Start calling the registry, until `close`; call this once `join` has returned True."""
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._stopped = _ALL_STOPPED
        self._attend()

    def may_stop(self, order: int) -> bool:
        return self._leaving or self._turn >= order

    def have_stopped(self, order: int) -> None:
        self._stopped = order

    def group_died(self, group: str) -> None:
        with self._generations_lock:
            wanted, ended = self._generations[group]
            self._generations[group] = Generation(wanted + 1, ended)

    def group_ended(self, group: str) -> None:
        with self._generations_lock:
            wanted, _ = self._generations[group]
            self._generations[group] = Generation(wanted, wanted)

    def may_start(self, group: str) -> bool:
        with self._generations_lock:
            wanted, ended = self._generations[group]
            others = [Generation(*known[group]) for known in self._others.values() if group in known]
        return ended == wanted and all(other.ended >= wanted for other in others)

    def ends(self, outcome: Outcome) -> None:
        if self._meeting is not None:
            self._meeting.end(outcome)
        elif outcome.failed_node is not None:
            if not self._leaving:
                self._failure = [outcome.failed_node, outcome.error or ""]
        elif self._turn < 0:
            # Only this host was stopped.
            self._leaving = True

    def _attend_for_ever(self) -> None:
        try:
            self._attend_until_ended()
        except Exception as error:
            # Without this thread, the supervisor would wait for other hosts forever.
            self._leave(self._host, error_text(error))

    def _attend_until_ended(self) -> None:
        heard = time.monotonic()
        silent = False
        while not self._ended.wait(_BEAT_SECONDS):
            answer = self._attend()
            now = time.monotonic()
            if answer is not None:
                if silent:
                    self._say("answers again")
                heard, silent = now, False
                self._take(answer)
            elif self._end_of_run():
                self._leaving = True
                self._events.put(Event("", "stop", self._end_of_run()))
            elif now - heard > self._cluster.patience:
                self._leave(self._cluster.first, f"it did not answer for {self._cluster.patience:.0f} s")
            elif now - heard > _SILENT_SECONDS and not silent:
                silent = True
                self._say(f"does not answer; waiting for up to {self._cluster.patience:.0f} s")

    def _take(self, answer: Answer) -> None:
        if answer.refusal or not answer.present:
            self._leave(self._host, answer.refusal or "another machine has taken its place")
            return
        self._turn = answer.turn
        if self._meeting is not None:
            self._meeting.look_round()
        elif answer.ending is not None:
            self._events.put(Event("", "outcome", Outcome(**answer.ending)))
        with self._generations_lock:
            self._others = answer.others
            for group, (wanted, ended) in self._generations.items():
                newest = max([0, *self._wanted_elsewhere(answer.others, group)])
                if newest > wanted:
                    self._generations[group] = Generation(newest, ended)
                    self._events.put(Event("", "group", group))

    def _leave(self, host: str, problem: str) -> None:
        """End this host's part in the run, as a failure."""
        self._leaving = True
        self._events.put(Event("", "failed", (f"host {host}", problem)))

    @staticmethod
    def _wanted_elsewhere(others: Mapping[str, Mapping[str, list[int]]], group: str) -> list[int]:
        return [known[group][0] for known in others.values() if group in known]

    def _attend(self) -> Answer | None:
        """Call the registry once; return None if it does not respond.

        Raises:
          CallboardError: the first host runs another version.
        """
        with self._generations_lock:
            generations = {group: list(known) for group, known in self._generations.items()}
        state = HostState(self._host, self._life, self._settings, self._stopped, generations, self._failure)
        try:
            reply = self._client.attend(_PROTOCOL, *state)
        except StatusNotOk as error:
            self._client = self._connect()
            if error.code.name not in _NO_ANSWER:
                # The reply was a Python error, so the method takes other arguments there.
                raise CallboardError(f"the first host, {self._cluster.first}, {_OTHER_VERSION}") from error
            return None
        if not isinstance(reply, (tuple, list)) or len(reply) != 2 or reply[0] != _PROTOCOL:
            raise CallboardError(f"the first host, {self._cluster.first}, {_OTHER_VERSION}")
        return Answer(*reply[1])

    def _connect(self) -> Any:
        return courier.Client(self._cluster.meeting_address, call_timeout=_CALL_SECONDS)

    def _say(self, text: str) -> None:
        self._events.put(Event(f"host {self._cluster.first} ({self._cluster.meeting_address})", "say", text))


def _differences(host: str, settings: Mapping[str, str], first: str, expected: Mapping[str, str]) -> str:
    """Return the settings in which two hosts differ, in one line; empty if there are none."""
    names = [name for name in {**expected, **settings} if settings.get(name) != expected.get(name)]
    if not names:
        return ""
    shown = [
        f"{name} is {settings.get(name, 'not set')} on {host} and {expected.get(name, 'not set')} on {first}"
        for name in names[:_SHOWN_DIFFERENCES]
    ]
    more = f"; and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return "; ".join(shown) + more + ": start every host with the same settings, versions and cluster file"
