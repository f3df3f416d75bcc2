"""Membership of hosts: the first host's table and its members, with a clock that the test moves and no network."""

import dataclasses

import pytest
from hosts_without_network import CLUSTER, ENOUGH, SETTINGS, Host, Run, no_answer, received

from callboard.errors import CallboardError
from callboard.launch.launchers.hosts.membership import LEAVE, PROTOCOL, HostTable
from callboard.launch.launchers.run_outcome import Outcome


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
    assert received(run.events, "message") == [f"refused, because {raised.value}"]
    with pytest.raises(CallboardError, match="the version of numpy is 2.0 on b and 1.23.5 on a"):
        Host(run, "b", **{"the version of numpy": "2.0"}).join()
    assert Host(run, "b").join()


def test_a_host_with_other_code_is_refused_by_the_name_of_the_file(run):
    env, rules = "the file corridor.py", "the file lib/rules.py"
    run.table = HostTable(CLUSTER, {**SETTINGS, env: "1", rules: "2"}, run.events, lambda: run.now)
    for code, difference in (
        ({env: "0", rules: "2"}, "the file corridor.py on b differs from that on a"),
        ({env: "1"}, "the file lib/rules.py is missing on b"),
        ({env: "1", rules: "2", "the file more.py": "3"}, "the file more.py is missing on a"),
    ):
        with pytest.raises(CallboardError) as raised:
            Host(run, "b", **code).join()
        assert str(raised.value) == (
            f"{difference}; start every host with the same settings, versions and cluster file, and copies of your "
            "modules (callboard cluster run sends them)"
        )
    assert Host(run, "b", **{env: "1", rules: "2"}).join()


@pytest.mark.parametrize("message", [("b", "1", SETTINGS, -1, {}, None), (1, "b", "1"), (PROTOCOL, "b", "1")])
def test_a_host_of_another_version_is_refused_once(run, message):
    for _ in range(2):
        protocol, command = run.table.heartbeat(*message)
        assert protocol == PROTOCOL and command[0] == LEAVE and "runs another version of Callboard" in command[1]
    assert received(run.events, "message") == [
        "refused, because it runs another version of Callboard; install the same version on every host"
    ]


def test_two_hosts_cannot_have_one_name(run):
    a, b = run.hosts("a", "b")
    second = Host(run, "b")
    second.wait = lambda seconds: run.heartbeats(a, b)
    with pytest.raises(CallboardError, match="another host has the name b, for 60 s"):
        second.join()
    assert b.received("failed") == []


def test_silence_is_reported_once_and_so_is_its_end(run):
    a, b = run.hosts("a", "b")
    run.heartbeats(a, times=40)
    assert received(run.events, "message") == [
        "joined the run, from 10.9.0.2",
        "at 10.9.0.2, has not responded for 10 s",
    ]
    run.heartbeats(a, b)
    assert received(run.events, "message") == ["responds again"]


def test_hosts_that_have_not_joined_are_named_from_time_to_time(run):
    (a,) = run.hosts("a")
    run.heartbeats(a, times=28)
    assert received(run.events, "message") == []
    run.heartbeats(a, times=240)
    assert received(run.events, "message") == ["at 10.9.0.2, has not joined yet; is the command running there?"] * 2


def test_a_restart_group_is_blocked_for_as_long_as_it_is_on_all_hosts(run):
    a, b, c = run.hosts("a", "b", "c")

    def seconds_blocked(**here):
        for host, name in ((a, "a"), (b, "b"), (c, "c")):
            if name in here:
                host.member.seconds_blocked({"learner": here[name]})
        run.heartbeats(*(host for host, name in ((a, "a"), (b, "b"), (c, "c")) if name in here), times=2)
        return a.member.seconds_blocked({"learner": here["a"]})["learner"]

    assert seconds_blocked(a=700.0, b=650.0, c=0.0) == 0.0
    assert seconds_blocked(a=700.0, b=650.0, c=610.0) == 610.0
    # A host whose nodes of the group have ended, to start again, reports none.
    b.member.seconds_blocked({})
    run.heartbeats(b, a)
    assert a.member.seconds_blocked({"learner": 701.0})["learner"] == 0.0
    assert seconds_blocked(a=800.0, b=750.0, c=710.0) == 710.0
    # What a silent host does is unknown: it may wait for data.
    for _ in range(25):
        seconds_blocked(a=820.0, b=770.0)
    assert seconds_blocked(a=820.0, b=770.0) == 0.0


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


@pytest.mark.parametrize(("come_and_go", "missing"), [(False, ["10.9.0.2", "10.9.0.3"]), (True, ["10.9.0.2"])])
def test_hosts_of_actors_that_come_and_go_may_be_missing(come_and_go, missing):
    run = Run()
    placement = {**CLUSTER.placement, "actor": ["a", "b", "c"]}
    cluster = dataclasses.replace(CLUSTER, placement=placement, actors_come_and_go=come_and_go)
    run.table = HostTable(cluster, SETTINGS, run.events, lambda: run.now)
    (a,) = run.hosts("a")
    run.heartbeats(a, times=60)
    assert received(run.events, "message") == [
        f"at {address}, has not joined yet; is the command running there?" for address in missing
    ]
