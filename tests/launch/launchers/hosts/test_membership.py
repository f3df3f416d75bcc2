"""The meeting of hosts: who may take part, in which order they end, and who is told of what."""

import pathlib
import queue
import threading

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.hosts.cluster_file import Cluster
from callboard.launch.launchers.hosts.membership import HostMember, HostRegistry
from callboard.launch.launchers.run_outcome import Outcome

CLUSTER = Cluster(
    path=pathlib.Path("cluster.yaml"),
    hosts={"a": "10.9.0.1", "b": "10.9.0.2"},
    ports=range(20000, 20100),
    placement={"learner": ["a", "b"], "replay": ["a"], "actor": ["b"], "evaluator": []},
    patience=0.2,
)
SETTINGS = {"seed": "1", "agent.learning_rate": "0.1", "the version of numpy": "1.23.5"}


class Host:
    def __init__(self, name, meeting, life="1", **settings):
        self.events = queue.SimpleQueue()
        self.end_of_run = ""
        self.attendance = HostMember(
            CLUSTER, name, life, {**SETTINGS, **settings}, {"learner"}, self.events, meeting, lambda: self.end_of_run
        )
        self.said = []

    def say(self, text):
        self.said.append(text)

    def join(self):
        return self.attendance.join(self, threading.Event())

    def beat(self):
        self.attendance._take(self.attendance._attend())

    def told(self, kind):
        events = []
        while not self.events.empty():
            events.append(self.events.get())
        return [event.content for event in events if event.kind == kind]


@pytest.fixture
def first_events():
    return queue.SimpleQueue()


@pytest.fixture
def meeting(first_events):
    return HostRegistry(CLUSTER, SETTINGS, first_events)


def local(name, meeting, **settings):
    """A host that calls the meeting without a network, and is not the first for that."""
    host = Host(name, meeting, **settings)
    host.attendance._meeting = meeting if name == CLUSTER.first else None
    return host


def test_a_host_with_other_settings_is_refused_by_name(meeting, first_events):
    assert local("a", meeting).join()
    with pytest.raises(CallboardError) as raised:
        local("b", meeting, seed="2").join()
    assert str(raised.value) == (
        "seed is 2 on b and 1 on a: start every host with the same settings, versions and cluster file"
    )
    assert "host b" == first_events.get().node
    with pytest.raises(CallboardError, match="the version of numpy is 2.0 on b and 1.23.5 on a"):
        local("b", meeting, **{"the version of numpy": "2.0"}).join()
    assert local("b", meeting).join()


def test_a_first_host_that_does_not_answer_is_named():
    with pytest.raises(CallboardError, match="the host a does not answer at 10.9.0.1:20000, for 0 s"):
        host = Host("b", None)
        host.attendance._attend = lambda: None
        host.join()


def test_a_host_that_comes_after_the_end_does_not_wait_for_the_others():
    host = Host("b", None)
    host.attendance._attend = lambda: None
    host.end_of_run = "90,000 environment steps are done"
    with pytest.raises(CallboardError, match="the run has ended: 90,000 environment steps are done"):
        host.join()


def test_two_hosts_cannot_bear_one_name(meeting):
    assert local("b", meeting, life="1").join()
    with pytest.raises(CallboardError, match="another host calls itself b"):
        local("b", meeting, life="2").join()


def test_hosts_end_in_the_order_of_the_nodes(meeting):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    assert not a.attendance.may_stop(0) and not b.attendance.may_stop(0)
    ending = Outcome(reason="enough")
    a.attendance.ends(ending)
    for host in (a, b):
        host.beat()
        assert host.attendance.may_stop(0) and not host.attendance.may_stop(1)
    assert b.told("outcome") == [ending]
    a.attendance.have_stopped(0)
    a.beat()
    assert not a.attendance.may_stop(1)
    b.attendance.have_stopped(0)
    for host in (b, a, b):
        host.beat()
    assert a.attendance.may_stop(1) and b.attendance.may_stop(1) and not a.attendance.may_stop(2)


def test_a_failure_is_told_to_the_first_host(meeting, first_events):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    b.attendance.ends(Outcome("actor/0 failed", 1, "actor/0", "its traceback"))
    b.beat()
    failures = []
    while not first_events.empty():
        event = first_events.get()
        failures += [event.content] if event.kind == "failed" else []
    assert failures == [("actor/0 on b", "its traceback")]


def test_a_failure_on_the_way_to_the_end_is_told_to_all(meeting, first_events):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    a.attendance.ends(Outcome(reason="enough"))
    b.beat()
    b.attendance.ends(Outcome("replay/1 failed", 1, "replay/1", "no space"))
    b.beat()
    failures = []
    while not first_events.empty():
        event = first_events.get()
        failures += [event.content] if event.kind == "failed" else []
    assert failures == [("replay/1 on b", "no space")]
    a.attendance.ends(Outcome("replay/1 on b failed", 1, "replay/1 on b", "no space"))
    b.beat()
    ended = Outcome("enough")
    for outcome in b.told("outcome"):
        ended.adopt(outcome)
    assert ended.failed_node == "replay/1 on b" and ended.exit_code == 1


def test_a_host_whose_place_was_taken_leaves(meeting):
    b = local("b", meeting)
    assert b.join()
    meeting._hosts["b"].heard -= 20
    assert local("b", meeting, life="2").join()
    b.beat()
    assert b.told("failed") == [("host b", "another machine has taken its place")]
    assert b.attendance.may_stop(3)


def test_a_host_that_was_asked_to_stop_leaves_alone(meeting):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    b.attendance.ends(Outcome("stopped by SIGTERM", 143))
    assert b.attendance.may_stop(3)
    a.beat()
    assert not a.attendance.may_stop(0)


def restart_is_awaited(host):
    """What the supervisor does when it is told to restart the group: all nodes end, then it asks."""
    host.attendance.group_ended("learner")
    return not host.attendance.may_start("learner")


def test_a_restart_group_begins_again_once_it_has_ended_on_all_hosts(meeting):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    for host in (a, b, a):
        host.beat()
    assert a.told("group") == [] and b.told("group") == []
    b.attendance.group_died("learner")
    assert restart_is_awaited(b)
    for host in (b, a, b):
        host.beat()
    assert a.told("group") == ["learner"] and b.told("group") == []
    assert not b.attendance.may_start("learner")
    a.attendance.group_ended("learner")
    assert a.attendance.may_start("learner")
    for host in (a, b, a, b):
        host.beat()
    assert b.attendance.may_start("learner")
    assert a.told("group") == [] and b.told("group") == []


def test_nodes_that_die_together_are_restarted_once(meeting):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    for host in (a, b):
        host.attendance.group_died("learner")
        host.attendance.group_ended("learner")
    for host in (a, b, a, b):
        host.beat()
    assert a.attendance.may_start("learner") and b.attendance.may_start("learner")
    assert a.told("group") == [] and b.told("group") == []


def test_a_host_that_comes_back_restarts_the_group_elsewhere(meeting):
    a, b = local("a", meeting), local("b", meeting)
    assert a.join() and b.join()
    meeting._hosts["b"].heard -= 20
    again = local("b", meeting, life="2")
    assert again.join()
    for host in (again, a):
        host.beat()
    assert a.told("group") == ["learner"] and again.told("group") == []


class OtherVersion:
    """The first host, with another version of Callboard."""

    def __init__(self, reply):
        self._reply = reply

    def attend(self, *state):
        return self._reply


@pytest.mark.parametrize("reply", [("", True, 0, None), (2, ("", True)), None])
def test_a_first_host_of_another_version_is_refused_by_name(reply):
    host = Host("b", OtherVersion(reply))
    with pytest.raises(CallboardError, match="the first host, a, runs another version of Callboard: install the same"):
        host.join()


def test_a_host_whose_thread_fails_ends_its_part_in_the_run(meeting):
    host = local("b", meeting)
    host.join()
    host.attendance._client = OtherVersion(None)
    host.attendance._attend_for_ever()
    (failed,) = host.told("failed")
    assert failed[0] == "host b" and "runs another version" in failed[1]


@pytest.mark.parametrize("call", [("b", "1", SETTINGS, -1, {}, None), (2, "b", "1"), (1, "b", "1")])
def test_a_host_of_another_version_is_refused_once_by_name(meeting, first_events, call):
    for _ in range(2):
        protocol, answer = meeting.attend(*call)
        assert protocol == 1 and "runs another version of Callboard" in answer[0]
    assert first_events.get().content == (
        "refused, because it runs another version of Callboard: install the same version on every host"
    )
    assert first_events.empty()
