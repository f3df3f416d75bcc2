"""The supervisor's decisions, with workers that do nothing and a clock that moves only when the supervisor waits."""

import bisect
import errno
import queue
import signal
import threading

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.supervision.supervisor import Event, Exit, Supervised, Supervisor, next_event
from callboard.launch.nodes.node import NodeRules
from callboard.launch.nodes.progress import NodeHeartbeat

KILLED = Exit(clean=False, description="killed by SIGKILL")
ENDED = Exit(clean=True, description="ended")


class Script:
    """A queue of events, some of which come at a given time, and the clock that goes with it."""

    def __init__(self):
        self.now = 0.0
        self.orders = []
        """The orders to the workers, with the time."""
        self._events = []
        self._number = 0

    def clock(self):
        return self.now

    def put(self, event, at=None):
        self._number += 1
        bisect.insort(self._events, (self.now if at is None else at, self._number, event))

    def get(self, timeout):
        if self._events and self._events[0][0] <= self.now + timeout:
            time, _, event = self._events.pop(0)
            self.now = max(self.now, time)
            return event() if callable(event) else event
        self.now += timeout
        assert self.now < 10_000, "the supervisor waits for ever"
        raise queue.Empty

    def get_nowait(self):
        return self.get(0.0)

    def empty(self):
        return not self._events or self._events[0][0] > self.now

    def signal(self, number, at, node=""):
        self.put(Event(node, "signal", number), at)

    def of(self, word):
        """Names of the nodes that got this order, in order."""
        return [name for name, order, _ in self.orders if order == word]


class FakeWorker:
    """Ends when it is ordered to, after `seconds`; never by itself."""

    def __init__(self, script, name, seconds=0.0, start_error=None):
        self.script, self.name, self.seconds, self.start_error = script, name, seconds, start_error
        self.dead = False

    def start(self):
        if self.start_error:
            raise self.start_error
        self._note("start")

    def stop(self):
        self._note("stop")
        self.end(ENDED, self.script.now + self.seconds)

    def kill(self):
        self._note("kill")
        self.end(KILLED)

    def end(self, how, at=None):
        def exit_once():
            if self.dead:
                return None
            self.dead = True
            return Event(self.name, "exit", how)

        self.script.put(exit_once, at)

    def _note(self, word):
        self.script.orders.append((self.name, word, self.script.now))


class Screen:
    """A monitor that may raise."""

    def __init__(self, error=None):
        self.lines, self.error = [], error

    def notify(self, text):
        if self.error:
            raise self.error
        self.lines.append(text)

    def status(self, status):
        self.notify(str(status))


RULES = {
    "coordinator": NodeRules(stop_order=3, keeps=True),
    "learner": NodeRules(stop_order=2, keeps=True, restart_group="learner", grace=60.0),
    "peer": NodeRules(stop_order=2, restart_group="learner"),
    "actor": NodeRules(stop_order=1, grace=10.0, restarts=2, restart_window=60.0),
}


class Run:
    """A supervisor of four nodes.  `seconds` is how long a node takes to end once it is ordered to."""

    def __init__(self, screen=None, others=None, **seconds):
        self.script = Script()
        self.screen = screen or Screen()
        self.workers = {}
        self.seconds = seconds
        self.start_errors = {}
        nodes = [Supervised(name, rules, lambda name=name: self._make_worker(name)) for name, rules in RULES.items()]
        if others is not None:
            others.script = self.script
        self.supervisor = Supervisor(nodes, self.script, self.screen, others, clock=self.script.clock)

    def _make_worker(self, name):
        error = self.start_errors.get(name)
        self.workers[name] = FakeWorker(self.script, name, self.seconds.get(name, 0.0), error)
        return self.workers[name]

    def dies(self, name, at, how=KILLED):
        """The node's worker of that time ends."""
        self.script.put(lambda: self.workers[name].end(how), at)

    def beats(self, name, first, last, activity="in environment step", works=True):
        """The node sends a heartbeat every second, with progress or without."""
        for second in range(first, last):
            heartbeat = NodeHeartbeat(second if works else 0, activity, "work")
            self.script.put(Event(name, "heartbeat", heartbeat), second)

    def limit(self, at):
        self.script.put(Event("coordinator", "stop", "enough"), at)

    def run(self):
        outcome = self.supervisor.run()
        assert all(worker.dead or worker.start_error for worker in self.workers.values())
        return outcome


def test_nodes_start_in_the_given_order_and_end_by_their_stop_order():
    run = Run(actor=3.0)
    run.limit(at=5)
    outcome = run.run()
    assert (outcome.reason, outcome.exit_code) == ("enough", 0)
    assert run.script.of("start") == list(RULES)
    assert run.script.of("stop") == ["actor", "learner", "peer", "coordinator"]
    times = {name: time for name, order, time in run.script.orders if order == "stop"}
    assert times["actor"] == 5 and times["learner"] == 8
    assert run.script.of("kill") == [] and run.screen.lines == []


def test_a_node_that_dies_is_started_again_until_it_has_died_too_often():
    run = Run()
    for time in (1, 2, 100, 101, 102):
        run.dies("actor", time)
    outcome = run.run()
    assert run.script.of("start").count("actor") == 5
    assert outcome.error == "killed by SIGKILL, 3 times in a row"
    assert (outcome.failed_node, outcome.exit_code) == ("actor", 1)
    assert run.script.now < 110
    assert run.screen.lines[0] == "actor: killed by SIGKILL; started again (1 of 2 within 60 s)"


def test_an_error_that_is_final_ends_the_run_at_once():
    run = Run()
    run.dies("actor", 1, Exit(clean=False, description="x", error="no such level", final=True))
    outcome = run.run()
    assert (outcome.failed_node, outcome.error) == ("actor", "no such level")
    assert run.script.of("start").count("actor") == 1


def test_the_nodes_of_a_restart_group_end_and_start_together():
    run = Run()
    run.dies("peer", 1)
    run.limit(at=5)
    assert run.run().exit_code == 0
    assert run.script.of("kill") == ["learner"]
    assert run.script.of("start") == [*RULES, "learner", "peer"]


class Others:
    """Other hosts, on which the restart group may start at the time `ready` and has to restart at `died`."""

    def __init__(self, ready, died=1e9):
        self.ready, self.died, self.ended = ready, died, []

    def must_restart(self, group):
        return self.script.now >= self.died and not self.ended

    def group_ended(self, group):
        self.ended.append(self.script.now)

    def may_start(self, group):
        return self.script.now >= self.ready

    def seconds_blocked(self, here):
        return here

    def may_stop(self, order):
        return True

    def have_stopped(self, order):
        pass

    def ends(self, outcome):
        pass


def starts_of(run, node):
    return [time for name, order, time in run.script.orders if (name, order) == (node, "start")]


def test_a_restart_group_waits_for_other_hosts_at_the_start_and_after_a_death():
    others = Others(ready=2)
    run = Run(others=others)
    run.script.put(lambda: setattr(others, "ready", 20), at=9)
    run.dies("learner", 10)
    run.limit(at=30)
    assert run.run().exit_code == 0
    first, second = starts_of(run, "peer")
    assert 2 <= first <= 3 and 20 <= second <= 21 and others.ended == [10]
    assert starts_of(run, "actor") == [0]


def test_a_restart_group_ends_when_a_node_of_it_died_on_another_host():
    others = Others(ready=0, died=10)
    run = Run(others=others)
    run.limit(at=30)
    assert run.run().exit_code == 0
    assert len(others.ended) == 1
    for name in ("learner", "peer"):
        first, second = starts_of(run, name)
        assert first == 0 and 10 <= second <= 11
    assert run.screen.lines == []


def test_a_node_that_does_not_end_is_killed_after_its_grace():
    run = Run(actor=1000.0)
    run.limit(at=5)
    outcome = run.run()
    assert outcome.exit_code == 0
    (killed,) = [time for name, order, time in run.script.orders if order == "kill"]
    assert 15 <= killed <= 15.3
    assert "actor: did not end in time and is killed" in run.screen.lines
    assert "waiting for actor, not started (3 s, at most 10 s)" in run.screen.lines


def test_a_learner_that_writes_to_a_slow_disk_is_waited_for_while_it_makes_progress():
    run = Run(learner=2000.0)
    run.limit(at=5)
    for second in range(0, 2005):
        run.script.put(
            Event("learner", "heartbeat", NodeHeartbeat(second // 300, "writing its checkpoint", "slow")), second
        )
    outcome = run.run()
    assert outcome.exit_code == 0 and run.script.of("kill") == []
    assert "waiting for learner, writing its checkpoint (1003 s, while it makes progress)" in run.screen.lines


def test_a_run_without_its_last_checkpoint_does_not_end_well():
    run = Run(learner=2000.0)
    run.limit(at=5)
    for second in range(0, 2005):
        run.script.put(Event("learner", "heartbeat", NodeHeartbeat(0, "writing its checkpoint", "slow")), second)
    outcome = run.run()
    assert (outcome.exit_code, outcome.failed_node) == (1, "learner")
    assert outcome.error == "killed by SIGKILL before it had kept what it has to keep"
    (killed,) = [time for name, order, time in run.script.orders if order == "kill"]
    assert 600 <= killed <= 605
    run = Run(learner=50.0)
    run.limit(at=5)
    run.dies("learner", at=10)
    assert run.run().exit_code == 1


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_run_in_order(number, code):
    run = Run(actor=3.0)
    run.script.signal(number, at=5)
    outcome = run.run()
    assert (outcome.exit_code, outcome.reason) == (code, f"stopped by {signal.Signals(number).name}")
    assert run.script.of("kill") == []


def test_a_second_signal_hurries_and_a_third_once_more():
    run = Run(actor=9.0, learner=50.0)
    run.script.signal(signal.SIGINT, at=5)
    run.script.signal(signal.SIGINT, at=7)
    assert run.run().exit_code == 130
    assert run.script.of("kill") == ["actor"]
    run = Run(actor=9.0, learner=50.0)
    for time in (5, 7, 9):
        run.script.signal(signal.SIGINT, at=time)
    assert run.run().exit_code == 130
    assert run.script.of("kill") == ["actor", "learner"]


def test_the_first_signal_while_a_run_ends_by_itself_kills_nothing_and_the_second_hurries():
    """The learner writes its last checkpoint; it has failed if it cannot."""
    for times, killed, code in (((7,), [], 0), ((7, 9), ["learner"], 1)):
        run = Run(learner=50.0)
        run.limit(at=5)
        for time in times:
            run.script.signal(signal.SIGINT, at=time)
        assert run.run().exit_code == code
        assert run.script.of("kill") == killed
        assert "the run is ending; a second signal kills what has not ended" in run.screen.lines


@pytest.mark.parametrize("first, second", [("", "learner"), ("learner", "")])
def test_signals_to_all_processes_at_once_are_one(first, second):
    run = Run(actor=9.0)
    for node, time in ((first, 5), (second, 5.2), ("", 5.5), ("peer", 9.0), ("actor", 11.0)):
        run.script.signal(signal.SIGTERM, time, node)
    assert run.run().exit_code == 143
    assert run.script.of("kill") == []


def test_a_signal_that_only_a_node_was_sent_ends_the_run():
    run = Run()
    run.script.signal(signal.SIGHUP, 5, "actor")
    assert run.run().exit_code == 129
    assert run.script.of("start") == list(RULES)


@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), ValueError("[/dev/video0]"), SystemExit(1)]
)
def test_a_screen_that_fails_ends_the_run_in_order_and_within_10_seconds(error):
    run = Run(screen=Screen(error), actor=1000.0, learner=1.0)
    run.script.put(Event("coordinator", "status", {}), at=5)
    outcome = run.run()
    assert (outcome.failed_node, outcome.exit_code) == ("launcher", 1)
    assert str(error) in outcome.error
    assert run.script.of("start") == list(RULES)
    assert run.script.of("stop") == ["actor", "learner", "peer", "coordinator"]
    assert run.script.now <= 15


def test_a_screen_that_goes_away_with_a_signal_is_no_failure():
    run = Run(screen=Screen(OSError(errno.EIO, "Input/output error")))
    run.script.put(Event("coordinator", "status", {}), at=5)
    run.script.signal(signal.SIGHUP, at=5)
    outcome = run.run()
    assert (outcome.failed_node, outcome.exit_code) == (None, 129)


def test_an_error_of_the_supervisor_ends_the_run_and_restarts_nothing():
    class Broken(Others):
        def may_start(self, group):
            if self.ended:
                raise RuntimeError("out of its mind")
            return True

        def may_stop(self, order):
            return order < 2

    run = Run(others=Broken(ready=0), learner=3.0)
    run.dies("peer", 1)
    outcome = run.run()
    assert (outcome.failed_node, outcome.exit_code) == ("launcher", 1)
    assert outcome.error.startswith("Traceback") and outcome.error.endswith("out of its mind")
    assert run.script.of("start") == list(RULES)
    assert run.script.now <= 11


@pytest.mark.parametrize(
    "error, text",
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit of open files"),
        (CallboardError("no such thing"), "no such thing"),
        (KeyError("what"), "Traceback"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_node_that_cannot_be_started_ends_the_run(error, text, again):
    run = Run()
    if again:
        run.dies("actor", 1)
        run.script.put(lambda: run.start_errors.update(actor=error), at=0.5)
    else:
        run.start_errors["actor"] = error
    outcome = run.run()
    assert (outcome.failed_node, outcome.exit_code) == ("actor", 1)
    assert outcome.error.startswith(text)
    assert run.script.of("stop") == ["learner", "peer", "coordinator"]


def test_a_node_that_hangs_is_killed_and_started_again():
    run = Run()
    for name in ("coordinator", "learner", "peer"):
        run.beats(name, 1, 400)
    run.beats("actor", 1, 400, works=False)
    run.limit(at=390)
    assert run.run().exit_code == 0
    assert [(name, word) for name, word, time in run.script.orders if time < 390 and word != "start"] == [
        ("actor", "kill")
    ]
    assert run.screen.lines[0] == "actor: in environment step for 8 s, at most 300 s"
    killed = run.screen.lines.index("actor: in environment step for 300 s, and is killed")
    assert run.screen.lines[killed + 1] == "actor: killed by SIGKILL; started again (1 of 2 within 60 s)"


def test_a_node_that_hangs_again_and_again_fails_the_run():
    """Although the deaths are minutes apart."""
    run = Run()
    run.beats("actor", 1, 2000, works=False)
    for name in ("coordinator", "learner", "peer"):
        run.beats(name, 1, 2000)
    outcome = run.run()
    assert (outcome.exit_code, outcome.failed_node) == (1, "actor")
    assert run.script.of("start").count("actor") == 3
    assert outcome.error == "environment step has not returned for 300 s (node_timeout), 3 times in a row"


def test_a_thread_that_hangs_fails_the_run():
    run = Run()
    run.supervisor._nodes["actor"].can_be_killed = False
    run.beats("actor", 1, 400, works=False)
    for name in ("coordinator", "learner", "peer"):
        run.beats(name, 1, 400)
    outcome = run.run()
    assert (outcome.exit_code, outcome.failed_node) == (1, "actor")
    assert outcome.error.startswith("in environment step for 300 s")


def deterministic(*deaths):
    node = Supervised("actor/0", NodeRules(stop_order=1), lambda: None)
    judged = []
    for place, achieved in deaths:
        node.achieved = achieved
        judged.append(node.is_deterministic(Exit(False, "KeyError", place=place)))
    return judged


def test_an_error_before_anything_was_achieved_or_twice_after_as_much_is_one_of_the_code():
    assert deterministic(("a.py:1", 0)) == [True]
    assert deterministic(("a.py:1", 7), ("a.py:1", 9), ("b.py:1", 9), ("b.py:1", 9)) == [False, False, False, True]
    assert deterministic(("a.py:1", 7), ("b.py:1", 0), ("b.py:1", 0)) == [False, False, True]
    assert deterministic(("", 0), ("", 0), ("", 0)) == [False] * 3, "faults are survived"


def test_no_event_is_awaited_for_longer_than_the_timeout():
    """Even where the timeout has passed before anything is looked at."""
    ended = threading.Event()

    def look():
        for _ in range(5_000):
            assert next_event(queue.SimpleQueue(), 0.0) is None
        ended.set()

    threading.Thread(target=look, daemon=True).start()
    assert ended.wait(30.0)
    events = queue.SimpleQueue()
    events.put(Event("", "line", "text"))
    assert next_event(events, 0.0).content == "text"


def test_a_machine_that_leaves_is_no_fault_of_its_node():
    run = Run()
    for second in range(1, 20):
        run.dies("actor", second, Exit(clean=False, description="its machine has gone", gone=True))
    run.limit(100)
    outcome = run.run()
    assert outcome.reason == "enough" and outcome.failed_node is None
    assert run.script.of("start").count("actor") == 20 and run.script.of("start").count("learner") == 1
    assert run.screen.lines[0] == "actor: its machine has gone; it starts again as soon as there is room"
