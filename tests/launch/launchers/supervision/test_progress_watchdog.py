"""Finding nodes that hang, with a clock of the test's own."""

import pytest

from callboard.launch.launchers.supervision.progress_watchdog import ProgressWatchdog
from callboard.launch.nodes.progress import NodeHeartbeat, Progress

TIMEOUT = 300.0


class Watch:
    """A watchdog that is called as the supervisor calls it, twice a second, with nodes that send heartbeats."""

    def __init__(self):
        self.now = 1000.0
        self.said = []
        self.overdue = []
        self.nodes = {}
        self.watchdog = ProgressWatchdog(self.said.append, lambda: self.now)

    def start(self, *names, timeout=TIMEOUT, group=""):
        for name in names:
            self.watchdog.began(name, timeout, group)
            self.nodes[name] = Progress()

    def let_pass(self, seconds, silent=(), working=()):
        """Time passes; nodes send heartbeats, but for the silent ones, and the working ones step environments."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for name, progress in self.nodes.items():
                if name in working:
                    progress.works("in environment step")
                if name not in silent:
                    self.watchdog.heard(name, progress.heartbeat())
            self.overdue += self.watchdog.look()


@pytest.fixture
def watch():
    return Watch()


def test_a_node_that_works_is_left_alone(watch):
    watch.start("actor/0")
    watch.let_pass(3600, working=["actor/0"])
    assert watch.said == [] and watch.overdue == []


def test_a_stopped_process_is_named_within_ten_seconds_and_overdue_after_its_timeout(watch):
    watch.start("actor/0", "learner/0")
    watch.let_pass(20, working=["actor/0", "learner/0"])
    watch.let_pass(10, working=["actor/0"], silent=["learner/0"])
    assert watch.said == ["learner/0: no heartbeat for 6 s, at most 300 s"]
    watch.let_pass(285, working=["actor/0"], silent=["learner/0"])
    assert watch.overdue == [] and len(watch.said) == 5
    watch.let_pass(10, working=["actor/0"], silent=["learner/0"])
    assert {found.node for found in watch.overdue} == {"learner/0"}
    assert watch.overdue[0].why == "no heartbeat for 300 s"


def test_a_stopped_process_that_continues_is_forgiven(watch):
    watch.start("learner/0")
    watch.let_pass(5, working=["learner/0"])
    watch.let_pass(20, silent=["learner/0"])
    watch.let_pass(5, working=["learner/0"])
    assert watch.said[-1] == "learner/0: makes progress again, after 20 s"
    watch.let_pass(290, silent=["learner/0"])
    assert watch.overdue == []


def test_an_environment_that_never_returns_is_named_with_what_it_does(watch):
    watch.start("actor/0", "actor/1")
    watch.let_pass(5, working=["actor/0", "actor/1"])
    watch.let_pass(10, working=["actor/0"])
    assert watch.said == ["actor/1: in environment step for 8 s, at most 300 s"]
    watch.let_pass(300, working=["actor/0"])
    assert watch.overdue[0] == ("actor/1", "in environment step for 300 s")


def test_slow_steps_of_a_healthy_node_are_named_once_and_then_from_a_quarter_of_the_limit_on(watch):
    watch.start("actor/0")
    for seconds in (5, 20, 5, 20, 5, 20, 5, 80, 5):
        watch.let_pass(seconds, working=["actor/0"] if seconds == 5 else [])
    assert watch.said == [
        "actor/0: in environment step for 8 s, at most 300 s",
        "actor/0: makes progress again, after 20 s",
        "actor/0: in environment step for 76 s, at most 300 s",
        "actor/0: makes progress again, after 80 s",
    ]


def test_a_role_that_marks_nothing_is_judged_by_its_steps(watch):
    watch.start("custom/0")
    for _ in range(1000):
        watch.nodes["custom/0"].begins_step()
        watch.let_pass(1)
    assert watch.said == []
    watch.let_pass(10)
    assert watch.said == ["custom/0: in its step for 8 s, at most 300 s"]


def test_a_loop_that_turns_while_it_waits_makes_no_progress(watch):
    watch.start("actor/0")
    for _ in range(70):
        watch.nodes["actor/0"].begins_step()
        watch.nodes["actor/0"].waits("newer weights")
        watch.let_pass(1)
    assert watch.said == ["actor/0: waiting for newer weights for 60 s"]


def test_who_waits_is_named_late_and_never_overdue(watch):
    watch.start("actor/0", "actor/1", "learner/0")
    watch.nodes["learner/0"].waits_for = lambda: "data"
    for name in ("actor/0", "actor/1"):
        watch.nodes[name].waits("weights of learner/0")
    watch.let_pass(59)
    assert watch.said == []
    watch.let_pass(3000)
    assert watch.said[:2] == [
        "actor/0, actor/1: waiting for weights of learner/0 for 60 s",
        "learner/0: waiting for data for 60 s",
    ]
    assert len(watch.said) == 2 * 5
    assert watch.overdue == []


def test_compilation_has_ten_minutes_whatever_the_timeout(watch):
    watch.start("learner/0", timeout=20.0)
    watch.nodes["learner/0"].works_slowly("in first learner step (compiling)")
    watch.let_pass(25)
    assert watch.said == []
    watch.let_pass(570)
    assert (
        watch.overdue == [] and watch.said[0] == "learner/0: in first learner step (compiling) for 30 s, at most 600 s"
    )
    watch.let_pass(10)
    assert watch.overdue


def test_a_node_that_does_not_start_is_named_soon_where_others_have_started(watch):
    watch.start("actor/0")
    watch.let_pass(5, working=["actor/0"])
    watch.start("actor/1")
    watch.let_pass(10, working=["actor/0"], silent=["actor/1"])
    assert watch.said == ["actor/1: not started for 8 s, at most 600 s"]


def test_many_nodes_share_a_line(watch):
    names = [f"actor/{index}" for index in range(100)]
    watch.start(*names)
    watch.let_pass(5, working=names)
    watch.let_pass(9, silent=names)
    assert watch.said == ["actor/0, actor/1, actor/2 and 97 more: no heartbeat for 6 s, at most 300 s"]


def test_the_suspension_of_the_whole_run_harms_no_one(watch):
    """A laptop that sleeps, or a launcher that was stopped: nodes are judged by the time in which it ran."""
    watch.start("actor/0", "actor/1")
    watch.let_pass(5, working=["actor/0", "actor/1"])
    watch.now += 3600
    watch.let_pass(0.5, silent=["actor/0", "actor/1"])
    watch.let_pass(5, working=["actor/0"], silent=["actor/1"])
    assert watch.said == [] and watch.overdue == []
    watch.let_pass(5, working=["actor/0"], silent=["actor/1"])
    assert len(watch.said) == 1


def test_a_restarted_node_begins_anew(watch):
    watch.start("actor/0")
    watch.let_pass(5, working=["actor/0"])
    watch.let_pass(299, silent=["actor/0"])
    watch.watchdog.ended("actor/0")
    watch.watchdog.heard("actor/0", NodeHeartbeat(1, "in environment step", "work"))  # Late.
    watch.start("actor/0")
    watch.let_pass(20, working=["actor/0"])
    assert watch.overdue == []


def stop(watch, nodes, seconds, grace=600.0, silent=()):
    """The run ends; gives the nodes that are given up, with the second in which they were."""
    given_up = {}
    for half in range(int(2 * seconds)):
        watch.now += 0.5
        for name, progress in watch.nodes.items():
            if name not in silent:
                watch.watchdog.heard(name, progress.heartbeat())
        alive = {name: keeps for name, keeps in nodes.items() if name not in given_up}
        for name, why in watch.watchdog.look_at_stop(alive, (half + 1) / 2, grace):
            given_up[name] = ((half + 1) / 2, why)
    return given_up


def test_a_stop_says_for_whom_it_waits(watch):
    watch.start("replay/0")
    watch.nodes["replay/0"].works_slowly("writing its checkpoint")
    assert stop(watch, {"replay/0": True}, 20) == {}
    assert watch.said == [
        "waiting for replay/0, writing its checkpoint (3 s, at most 600 s)",
        "waiting for replay/0, writing its checkpoint (13 s, at most 600 s)",
    ]


def test_a_stop_does_not_wait_for_who_sends_no_heartbeats(watch):
    watch.start("replay/0")
    watch.let_pass(5, working=["replay/0"])
    given_up = stop(watch, {"replay/0": True}, 20, silent=["replay/0"])
    assert given_up == {"replay/0": (15.5, "no heartbeat for 16 s")}
    watch.start("replay/0")
    watch.let_pass(5, working=["replay/0"])
    watch.let_pass(100, silent=["replay/0"])
    assert stop(watch, {"replay/0": True}, 20, silent=["replay/0"])["replay/0"][0] == 2.5


def test_a_stop_does_not_wait_for_an_environment_that_hangs(watch):
    watch.start("actor/0", "learner/0")
    watch.let_pass(5, working=["actor/0", "learner/0"])
    watch.let_pass(20)
    given_up = stop(watch, {"actor/0": False, "learner/0": True}, 5)
    assert given_up == {"actor/0": (2.5, "in environment step for 22 s")}


def test_nodes_that_block_each_other_in_shared_work_are_overdue(watch):
    for name in ("learner/0", "learner/1"):
        watch.start(name, group="learner")
        watch.nodes[name].works_with_others("in learner step with the other learners")
    watch.let_pass(590)
    assert watch.overdue == []
    watch.let_pass(20)
    assert {found.node for found in watch.overdue} == {"learner/0", "learner/1"}
    assert watch.overdue[0].why == "in learner step with the other learners for 600 s"


def test_shared_work_is_overdue_once_the_nodes_on_all_hosts_are_blocked(watch):
    elsewhere, reported = 0.0, []

    def blocked_everywhere(here):
        reported.append(here)
        return {group: min(seconds, elsewhere) for group, seconds in here.items()}

    watch.watchdog = ProgressWatchdog(watch.said.append, lambda: watch.now, blocked_everywhere)
    watch.start("learner/0", group="learner")
    watch.start("actor/0")
    watch.nodes["learner/0"].works_with_others("in learner step with the other learners")
    watch.let_pass(700, working=["actor/0"])
    assert watch.overdue == []
    assert 695 <= reported[-1]["learner"] <= 700 and reported[-1].keys() == {"learner"}
    elsewhere = 601.0
    watch.let_pass(2, working=["actor/0"])
    assert {found.node for found in watch.overdue} == {"learner/0"}
    # A host on which a node has made progress since is not blocked, whatever the others report.
    watch.overdue.clear()
    watch.nodes["learner/0"].works_with_others("in learner step with the other learners")
    elsewhere = 1e9
    watch.let_pass(590, working=["actor/0"])
    assert watch.overdue == [] and reported[-1]["learner"] <= 591


def test_shared_work_waits_for_a_node_that_waits_for_data(watch):
    for name in ("learner/0", "learner/1"):
        watch.start(name, group="learner")
        watch.nodes[name].works_with_others("in learner step with the other learners")
    watch.nodes["learner/1"].waits_for = lambda: "data"
    watch.let_pass(3600)
    assert watch.overdue == []


def test_shared_work_with_nodes_that_another_watchdog_watches_is_never_overdue(watch):
    watch.start("learner/0")
    watch.nodes["learner/0"].works_with_others("in learner step with the other learners")
    watch.let_pass(3600)
    assert watch.overdue == []
