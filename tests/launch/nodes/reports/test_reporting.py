"""Reports to a real coordinator over a line that loses calls or answers, with a clock that the test moves."""

import threading
import types

import pytest
from courier.python.client import StatusNotOk

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.coordinator import Coordinator
from callboard.launch.nodes.node import NodeContext
from callboard.launch.nodes.reports import reporting
from callboard.launch.nodes.reports.messages import LeaseRequest, Report, RunState
from callboard.launch.nodes.reports.reporting import KnownLearners, Reporter, ReportingNode
from callboard.launch.run_directory.layout import RunDirectory
from callboard.runtime.deadlines import wait_until


class Line:
    """The coordinator's handle and client.  A call is lost, or its answer, or both arrive."""

    name = "coordinator/0"

    def __init__(self, directory):
        self.now = 0.0
        self.fault = ""
        self.calls = []
        """The timeout of every call."""
        self._timeout = 0.0
        self._directory = directory
        self.restart_coordinator("c")

    def restart_coordinator(self, incarnation):
        experiment = Experiment(Impala(), "CartPole-v1", max_steps=1000)
        run = Run(experiment, experiment.layout(), self._directory)
        self.coordinator = Coordinator(_context("coordinator/0", incarnation), run, lambda: self.now)

    def client(self, timeout):
        self._timeout = timeout
        return self

    def report(self, *arguments):
        self.calls.append(self._timeout)
        if self.fault != "call":
            answer = self.coordinator.report(*arguments)
        if self.fault:
            self.now += self._timeout
            raise StatusNotOk("lost")
        return answer

    def counted(self, name):
        return self.coordinator.status().get(name, 0)


def _context(name, incarnation):
    return NodeContext(name, incarnation, threading.Event(), lambda kind, content: None, None)


class Actor:
    """A node that has done some steps and episodes."""

    def __init__(self, line, name="actor/0", incarnation="a"):
        self.steps, self.episodes, self.lease, self.limits = 0, [], None, []
        self.context = _context(name, incarnation)
        self.reporter = Reporter(self.context, line, self.collect, self.limits.append, clock=lambda: line.now)

    def acts(self, steps):
        self.steps += steps
        self.episodes.append((float(steps), steps))

    def collect(self):
        episodes, self.episodes = self.episodes, []
        return Report({"environment_steps": self.steps, "episodes": 0}, {}, episodes, lease=self.lease)


@pytest.fixture
def line(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create()
    return Line(directory)


@pytest.mark.parametrize("fault", ["call", "answer"])
def test_a_lost_report_is_repeated_and_counts_once(line, fault):
    actor = Actor(line)
    actor.acts(10)
    line.fault = fault
    assert not actor.reporter.report() and not actor.reporter.report()
    actor.acts(30)
    line.fault = ""
    assert actor.reporter.report()
    assert line.counted("environment_steps") == 10 and line.counted("actor/episode_return") == 10.0
    assert actor.reporter.report()
    assert line.counted("environment_steps") == 40 and line.counted("actor/episode_return") == 20.0


@pytest.mark.parametrize("fault", ["call", "answer"])
def test_the_last_counts_are_reported_although_the_report_before_is_unanswered(line, fault):
    actor = Actor(line)
    actor.acts(10)
    line.fault = fault
    assert not actor.reporter.report()
    actor.acts(30)
    line.fault = ""
    actor.reporter.close()
    assert line.counted("environment_steps") == 40 and line.counted("actor/episode_return") == 20.0


def test_the_last_report_is_tried_again_only_if_the_coordinator_has_answered_recently(line):
    actor = Actor(line)
    assert actor.reporter.report()
    line.fault = "call"
    line.calls.clear()
    actor.reporter.close()
    assert line.calls == [5.0] and line.now == 5.0
    actor.reporter.close()
    assert line.calls == [5.0, 1.0]


def test_an_abandoned_reporter_reports_nothing_more(line):
    actor = Actor(line)
    actor.acts(10)
    actor.reporter.abandon()
    actor.reporter.start()
    assert line.calls == []


def test_a_node_is_cut_off_after_some_seconds_without_an_answer(line):
    actor = Actor(line)
    assert actor.reporter.report() and not actor.reporter.is_cut_off
    line.now += 3.4
    assert not actor.reporter.is_cut_off and actor.reporter.call_seconds == 5.0
    line.now += 0.2
    assert actor.reporter.is_cut_off and actor.reporter.call_seconds == 1.0
    assert actor.reporter.report() and not actor.reporter.is_cut_off
    actor.reporter.report()
    assert line.calls[-1] == 5.0


def test_a_restarted_coordinator_gets_the_totals_and_the_known_incarnations_are_kept(line):
    actor = Actor(line)
    actor.acts(10)
    Actor(line, "actor/1", "b").reporter.report()
    actor.reporter.report()
    assert actor.reporter.state.incarnations == {"actor/0": "a", "actor/1": "b"}
    line.restart_coordinator("another")
    actor.acts(5)
    actor.reporter.report()
    assert line.counted("environment_steps") == 15
    assert actor.reporter.state.incarnations == {"actor/0": "a", "actor/1": "b"}
    Actor(line, "actor/1", "b again").reporter.report()
    actor.reporter.report()
    assert actor.reporter.state.incarnations["actor/1"] == "b again"


def test_a_lease_is_renewed_with_an_answer(line):
    actor = Actor(line)
    actor.lease = LeaseRequest(0, True)
    line.fault = "answer"
    actor.reporter.report()
    assert actor.limits == []
    line.fault = ""
    actor.reporter.report()
    assert len(actor.limits) == 1


def test_waiting_for_a_node_ends_with_its_first_report_or_with_the_run(line):
    actor = Actor(line)
    assert actor.reporter.wait_for("actor/0")
    actor.context.stop.set()
    assert not actor.reporter.wait_for("replay/0")


@pytest.mark.parametrize(
    ("name", "policy", "seconds"), [("actor/0", "", 1.0), ("actor/0", "red", 2.0), ("inference/red/0", "", 2.0)]
)
def test_nodes_know_how_long_a_learner_of_theirs_was_short_of_data(name, policy, seconds):
    node = ReportingNode(_context(name, "a"), types.SimpleNamespace(name="coordinator/0", client=lambda timeout: None))
    node.reporter.state = node.reporter.state._replace(short_of_data={"learner/0": 1.0, "learner/red/0": 2.0})
    assert node.reporter.learners_of(policy).short_of_data(0) == seconds


def test_a_node_waits_for_space_on_the_disk_before_it_starts(monkeypatch):
    line = types.SimpleNamespace(name="coordinator/0", client=lambda timeout: None)
    sent, spaces = [], iter([False, False, True])
    context = NodeContext("actor/0", "a", threading.Event(), lambda kind, text: sent.append(text), None)
    node = ReportingNode(context, line)
    monkeypatch.setattr(context.stop, "wait", lambda seconds: None)
    monkeypatch.setattr(reporting, "has_space", lambda directory: next(spaces))
    node.wait_for_space()
    assert sent == ["waits for space on the disk, which is full, to start"] and not list(spaces)


KNOWN = RunState(False, 0, {}, None, 0.5, short_of_data={"learner/1": 1.0, "learner/red/0": 2.0}, finished=["red"])


@pytest.mark.parametrize("policy, rank, seconds", [("", 1, 1.0), ("", 0, 0.0), ("red", 0, 2.0), ("blue", 0, 0.0)])
def test_each_policy_and_rank_has_its_own_shortage(policy, rank, seconds):
    assert KnownLearners(types.SimpleNamespace(state=KNOWN), policy).short_of_data(rank) == seconds


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("while_others_learn", [False, True])
def test_learners_have_finished_until_the_run_ends_where_only_others_count(stopping, while_others_learn):
    informed = types.SimpleNamespace(state=KNOWN._replace(stopping=stopping))
    finished = {policy: KnownLearners(informed, policy, while_others_learn).have_finished for policy in ("red", "blue")}
    assert finished == {"red": not (stopping and while_others_learn), "blue": False}


def test_known_learners_follow_the_newest_answer():
    informed = types.SimpleNamespace(state=KNOWN)
    learners = KnownLearners(informed, "red")
    informed.state = KNOWN._replace(short_of_data={}, finished=[])
    assert learners.short_of_data(0) == 0.0 and not learners.have_finished


def test_an_error_of_the_thread_that_reports_ends_the_node():
    class Node(ReportingNode):
        def collect(self):
            raise ValueError("no report can be made")

    node = Node(_context("actor/0", "a"), types.SimpleNamespace(name="coordinator/0", client=lambda timeout: None))
    node.between_steps()
    node.begin_reports()
    assert wait_until(lambda: node.reporter.failure is not None, 10, 0.001)
    with pytest.raises(ValueError, match="no report can be made"):
        node.between_steps()
