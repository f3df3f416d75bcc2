"""Hosts of a run without a network, with a clock that the test moves."""

import pathlib
import queue
import types

from courier.python.client import StatusNotOk

from callboard.launch.launchers.hosts.cluster_file import Cluster
from callboard.launch.launchers.hosts.host_member import HostMember
from callboard.launch.launchers.hosts.membership import HostTable
from callboard.launch.launchers.run_outcome import Outcome

CLUSTER = Cluster(
    path=pathlib.Path("cluster.yaml"),
    hosts={"a": "10.9.0.1", "b": "10.9.0.2", "c": "10.9.0.3"},
    ports=range(20000, 20100),
    placement={"learner": ["a", "b"], "replay": ["a"], "actor": ["b"], "evaluator": []},
    patience=60.0,
)
SETTINGS = {"seed": "1", "agent.optimizer.learning_rate": "0.1", "the version of numpy": "1.23.5"}
ENOUGH = Outcome(reason="enough")


def no_answer(code):
    error = StatusNotOk(code)
    error.code = types.SimpleNamespace(name=code)
    return error


class Run:
    """The clock and the first host's table, which can be made anew and out of reach."""

    def __init__(self):
        self.now = 0.0
        self.events = queue.SimpleQueue()
        self.restart_first_host()

    def restart_first_host(self):
        self.table = HostTable(CLUSTER, SETTINGS, self.events, lambda: self.now)

    def hosts(self, *names):
        hosts = [Host(self, name) for name in names]
        for host in hosts:
            assert host.join()
        return hosts

    def heartbeats(self, *hosts, times=1):
        for _ in range(times):
            self.now += 0.5
            for host in hosts:
                host.member.heartbeat()


class Host:
    """A host.  It calls the table directly, unless the call or its answer is lost."""

    def __init__(self, run, name, groups=("learner",), **settings):
        self.run, self.said, self.error, self.end_of_run, self.stop_after = run, [], None, "", 1000.0
        self.answer_is_lost = False
        self.events = run.events if name == CLUSTER.first else queue.SimpleQueue()
        self.member = HostMember(
            CLUSTER,
            name,
            {**SETTINGS, **settings},
            groups,
            self.events,
            connect=lambda: self,
            end_of_run=lambda: self.end_of_run,
            clock=lambda: run.now,
        )

    def heartbeat(self, *message):
        if self.error is not None:
            raise self.error
        answer = self.run.table.heartbeat(*message)
        if self.answer_is_lost:
            raise no_answer("DEADLINE_EXCEEDED")
        return answer

    def notify(self, text):
        self.said.append(text)

    def join(self):
        return self.member.join(self, self)

    def is_set(self):
        """Whether the host was stopped, as for the next one."""
        return self.run.now > self.stop_after

    def wait(self, seconds):
        self.run.now += seconds

    def received(self, kind):
        return received(self.events, kind)


def received(events, kind):
    found = []
    while not events.empty():
        found.append(events.get())
    return [event.content for event in found if event.kind == kind]
