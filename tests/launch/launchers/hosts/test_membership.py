"""Membership of hosts: the first host's table and its members, with a clock that the test moves and no network."""

import pathlib
import queue
import types

import pytest
from courier.python.client import StatusNotOk

from callboard.errors import CallboardError
from callboard.launch.launchers.hosts.cluster_file import Cluster
from callboard.launch.launchers.hosts.host_member import HostMember
from callboard.launch.launchers.hosts.membership import LEAVE, PROTOCOL, HostTable
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

    def say(self, text):
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


@pytest.fixture
def run():
    return Run()


def test_a_host_with_other_settings_is_refused_once_by_name(run):
    run.hosts("a")
    for _ in range(2):
        with pytest.raises(CallboardError) as raised:
            Host(run, "b", seed="2").join()
        assert str(raised.value) == (
            "seed is 2 on b and 1 on a; start every host with the same settings, versions and cluster file"
        )
    assert received(run.events, "say") == [f"refused, because {raised.value}"]
    with pytest.raises(CallboardError, match="the version of numpy is 2.0 on b and 1.23.5 on a"):
        Host(run, "b", **{"the version of numpy": "2.0"}).join()
    assert Host(run, "b").join()


@pytest.mark.parametrize("message", [("b", "1", SETTINGS, -1, {}, None), (1, "b", "1"), (PROTOCOL, "b", "1")])
def test_a_host_of_another_version_is_refused_once(run, message):
    for _ in range(2):
        protocol, command = run.table.heartbeat(*message)
        assert protocol == PROTOCOL and command[0] == LEAVE and "runs another version of Callboard" in command[1]
    assert received(run.events, "say") == [
        "refused, because it runs another version of Callboard; install the same version on every host"
    ]


@pytest.mark.parametrize("answer", [("", True, 0, None), (1, ("", True)), None])
def test_a_first_host_of_another_version_is_named(run, answer):
    host = Host(run, "b")
    run.table.heartbeat = lambda *message: answer
    with pytest.raises(CallboardError, match="the first host, a, runs another version of Callboard; install the same"):
        host.join()
    host.error = no_answer("UNKNOWN")
    with pytest.raises(CallboardError, match="the first host, a, runs another version"):
        host.join()


def test_a_first_host_that_does_not_answer_is_named(run):
    host = Host(run, "b")
    host.error = no_answer("DEADLINE_EXCEEDED")
    with pytest.raises(CallboardError, match="the host a does not answer at 10.9.0.1:20000, for 60 s"):
        host.join()
    assert 60 <= run.now < 61
    assert host.said == ["the host a does not answer at 10.9.0.1:20000; waiting for up to 60 s"]


def test_a_host_that_is_stopped_before_it_has_joined_ends(run):
    host = Host(run, "b")
    host.error = no_answer("UNAVAILABLE")
    host.stop_after = 5.0
    assert not host.join()


def test_a_host_that_starts_after_the_end_does_not_wait(run):
    host = Host(run, "b")
    host.error = no_answer("UNAVAILABLE")
    host.end_of_run = "90,000 environment steps are done"
    with pytest.raises(CallboardError, match="the run has ended: 90,000 environment steps are done"):
        host.join()
    a, _ = run.hosts("a", "b")
    a.member.ends(ENOUGH)
    run.heartbeats(a)
    with pytest.raises(CallboardError, match="the run is ending: enough"):
        Host(run, "c").join()


def test_two_hosts_cannot_have_one_name(run):
    a, b = run.hosts("a", "b")
    second = Host(run, "b")
    second.wait = lambda seconds: run.heartbeats(a, b)
    with pytest.raises(CallboardError, match="another host has the name b, for 60 s"):
        second.join()
    assert b.received("failed") == []


def test_a_host_whose_place_was_taken_leaves(run):
    a, b = run.hosts("a", "b")
    run.heartbeats(a, times=21)
    assert Host(run, "b").join()
    run.heartbeats(b)
    assert b.received("failed") == [("host b", "another machine has taken its place")]
    assert b.member.may_stop(3)


def test_silence_is_reported_once_and_so_is_its_end(run):
    a, b = run.hosts("a", "b")
    run.heartbeats(a, times=40)
    assert received(run.events, "say") == [
        "joined the run, from 10.9.0.2",
        "at 10.9.0.2, has not responded for 10 s",
    ]
    run.heartbeats(a, b)
    assert received(run.events, "say") == ["responds again"]


def test_hosts_that_have_not_joined_are_named_from_time_to_time(run):
    (a,) = run.hosts("a")
    run.heartbeats(a, times=28)
    assert received(run.events, "say") == []
    run.heartbeats(a, times=240)
    assert received(run.events, "say") == ["at 10.9.0.2, has not joined yet; is the command running there?"] * 2


def test_the_first_host_is_given_up_after_the_patience(run):
    _, b = run.hosts("a", "b")
    b.error = no_answer("UNAVAILABLE")
    run.heartbeats(b, times=119)
    assert b.received("failed") == [] and not b.member.may_stop(0)
    b.error = None
    run.heartbeats(b)
    b.error = no_answer("UNAVAILABLE")
    run.heartbeats(b, times=121)
    failures = b.received("failed")
    assert set(failures) == {("host a", "it did not answer for 60 s")}
    assert b.member.may_stop(3)


def test_the_silence_of_the_first_host_is_reported(run):
    _, b = run.hosts("a", "b")
    b.error = no_answer("UNAVAILABLE")
    run.heartbeats(b, times=60)
    b.error = None
    run.heartbeats(b)
    assert b.received("say") == ["does not answer; waiting for up to 60 s", "answers again"]


def test_a_first_host_that_has_gone_after_the_end_of_the_run_is_not_waited_for(run):
    _, b = run.hosts("a", "b")
    b.error, b.end_of_run = no_answer("UNAVAILABLE"), "enough"
    run.heartbeats(b)
    assert b.received("stop") == ["enough"] and b.member.may_stop(3)


def test_nodes_end_in_their_order_on_all_hosts(run):
    a, b = run.hosts("a", "b")
    assert not a.member.may_stop(0) and not b.member.may_stop(0)
    a.member.ends(ENOUGH)
    run.heartbeats(a, b)
    for host in (a, b):
        assert host.member.may_stop(0) and not host.member.may_stop(1)
    assert b.received("outcome") == [ENOUGH]
    a.member.have_stopped(0)
    run.heartbeats(a, b, a)
    assert not a.member.may_stop(1) and not b.member.may_stop(1)
    b.member.have_stopped(0)
    run.heartbeats(b, a, b)
    assert a.member.may_stop(1) and b.member.may_stop(1) and not a.member.may_stop(2)
    assert b.received("outcome") == []


def test_the_end_does_not_wait_for_a_silent_host(run):
    a, b = run.hosts("a", "b")
    a.member.ends(ENOUGH)
    a.member.have_stopped(0)
    run.heartbeats(a, times=10)
    assert not a.member.may_stop(1)
    run.heartbeats(a, times=12)
    assert a.member.may_stop(1)


def test_a_failure_on_another_host_is_reported_to_the_first(run):
    a, b = run.hosts("a", "b")
    b.member.ends(Outcome("actor/0 failed", 1, "actor/0", "its traceback"))
    run.heartbeats(b)
    assert received(run.events, "failed") == [("actor/0 on b", "its traceback")]
    assert not b.member.may_stop(0)


def test_a_failure_during_the_end_becomes_the_outcome_on_all_hosts(run):
    a, b = run.hosts("a", "b")
    a.member.ends(ENOUGH)
    run.heartbeats(a, b)
    b.member.ends(Outcome("replay/1 failed", 1, "replay/1", "no space"))
    run.heartbeats(b)
    assert received(run.events, "failed") == [("replay/1 on b", "no space")]
    a.member.ends(Outcome("replay/1 on b failed", 1, "replay/1 on b", "no space"))
    run.heartbeats(a, b)
    ended = Outcome("enough")
    for outcome in b.received("outcome"):
        ended.adopt(outcome)
    assert (ended.failed_node, ended.exit_code) == ("replay/1 on b", 1)


def test_a_host_that_was_stopped_leaves_alone_and_may_return_at_once(run):
    a, b = run.hosts("a", "b")
    b.member.ends(Outcome("stopped by SIGTERM", 143))
    assert b.member.may_stop(3)
    run.heartbeats(a)
    assert not a.member.may_stop(0)
    b.member.start()
    b.member.close()
    before = run.now
    assert Host(run, "b").join() and run.now == before
    assert received(run.events, "say")[-1] == "rejoined the run"


def test_a_host_whose_first_host_was_restarted_during_the_end_does_not_wait(run):
    a, b = run.hosts("a", "b")
    a.member.ends(ENOUGH)
    run.heartbeats(a, b)
    run.restart_first_host()
    run.heartbeats(b)
    assert b.member.may_stop(3)


def test_a_host_whose_thread_fails_leaves(run):
    _, b = run.hosts("a", "b")
    run.table.heartbeat = lambda *message: (1, ())
    b.member.start()
    b.member.close()
    (failed,) = b.received("failed")
    assert failed[0] == "host b" and "runs another version" in failed[1]


def test_a_restart_group_starts_again_once_it_has_ended_on_all_hosts(run):
    a, b = run.hosts("a", "b")
    run.heartbeats(a, b)
    for host in (a, b):
        assert host.member.may_start("learner") and not host.member.must_restart("learner")
    b.member.group_ended("learner")
    assert not b.member.may_start("learner")
    run.heartbeats(b, a, b)
    assert a.member.must_restart("learner") and not b.member.must_restart("learner")
    assert not a.member.may_start("learner") and not b.member.may_start("learner")
    a.member.group_ended("learner")
    assert not a.member.must_restart("learner")
    run.heartbeats(a, b)
    for host in (a, b):
        assert host.member.may_start("learner") and not host.member.must_restart("learner")


def test_nodes_that_die_together_are_restarted_once(run):
    a, b = run.hosts("a", "b")
    for host in (a, b):
        host.member.group_ended("learner")
    run.heartbeats(a, b, a)
    for host in (a, b):
        assert host.member.may_start("learner") and not host.member.must_restart("learner")


def test_lost_answers_start_no_other_epoch(run):
    a, b = run.hosts("a", "b")
    b.answer_is_lost = True
    b.member.group_ended("learner")
    run.heartbeats(b, a, times=4)
    assert a.member.must_restart("learner") and not b.member.may_start("learner")
    a.member.group_ended("learner")
    b.answer_is_lost = False
    run.heartbeats(a, b, a)
    for host in (a, b):
        assert host.member.may_start("learner") and not host.member.must_restart("learner")


def test_a_silent_host_is_not_waited_for_and_restarts_the_group_when_it_is_back(run):
    a, b = run.hosts("a", "b")
    b.error = no_answer("UNAVAILABLE")
    a.member.group_ended("learner")
    run.heartbeats(a, b, times=10)
    assert not a.member.may_start("learner")
    run.heartbeats(a, b, times=12)
    assert a.member.may_start("learner") and not b.member.must_restart("learner")
    b.error = None
    run.heartbeats(b, a)
    assert b.member.must_restart("learner") and not a.member.must_restart("learner")
    b.member.group_ended("learner")
    run.heartbeats(b)
    assert b.member.may_start("learner")


def test_a_host_that_returns_restarts_the_group_elsewhere(run):
    a, b = run.hosts("a", "b")
    run.heartbeats(a, times=21)
    again = Host(run, "b")
    assert again.join()
    assert not again.member.may_start("learner")
    run.heartbeats(again, a)
    assert a.member.must_restart("learner") and not again.member.must_restart("learner")
    a.member.group_ended("learner")
    run.heartbeats(a, again)
    assert a.member.may_start("learner") and again.member.may_start("learner")


def test_a_host_that_joins_late_restarts_nothing(run):
    (a,) = run.hosts("a")
    a.member.group_ended("learner")
    run.heartbeats(a, times=40)
    (b,) = run.hosts("b")
    run.heartbeats(a, b)
    for host in (a, b):
        assert host.member.may_start("learner") and not host.member.must_restart("learner")


def test_a_restarted_first_host_restarts_the_group_elsewhere(run):
    a, b = run.hosts("a", "b")
    b.member.group_ended("learner")
    run.heartbeats(b)
    run.restart_first_host()
    (a,) = run.hosts("a")
    run.heartbeats(b, a)
    assert a.member.must_restart("learner") and b.member.must_restart("learner")
    for host in (a, b):
        host.member.group_ended("learner")
    run.heartbeats(a, b, a)
    for host in (a, b):
        assert host.member.may_start("learner") and not host.member.must_restart("learner")


def test_a_host_without_nodes_of_the_group_does_not_affect_it(run):
    a, b = run.hosts("a", "b")
    other = Host(run, "c", groups=())
    assert other.join()
    b.member.group_ended("learner")
    a.member.group_ended("learner")
    run.heartbeats(other, a, b, a)
    assert a.member.may_start("learner") and b.member.may_start("learner")
