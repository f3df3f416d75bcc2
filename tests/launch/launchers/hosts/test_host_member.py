"""A member of a run over several hosts: how it joins, bears the silence of the first host, and leaves."""

import pytest
from hosts_without_network import ENOUGH, Host, Run, no_answer, received

from callboard.errors import CallboardError
from callboard.launch.launchers.run_outcome import Outcome


@pytest.fixture
def run():
    return Run()


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


def test_a_host_whose_place_was_taken_leaves(run):
    a, b = run.hosts("a", "b")
    run.heartbeats(a, times=21)
    assert Host(run, "b").join()
    run.heartbeats(b)
    assert b.received("failed") == [("host b", "another machine has taken its place")]
    assert b.member.may_stop(3)


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
    assert b.received("message") == ["does not answer; waiting for up to 60 s", "answers again"]


def test_a_first_host_that_has_gone_after_the_end_of_the_run_is_not_waited_for(run):
    _, b = run.hosts("a", "b")
    b.error, b.end_of_run = no_answer("UNAVAILABLE"), "enough"
    run.heartbeats(b)
    assert b.received("stop") == ["enough"] and b.member.may_stop(3)


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
    assert received(run.events, "message")[-1] == "rejoined the run"


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
