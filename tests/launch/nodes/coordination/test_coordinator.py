"""The coordinator: counters that survive repeats and restarts, and the decision to stop."""

import itertools
import json
import math
import shutil
import threading
import time

import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.files.manifest import write_manifest
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.coordinator import Coordinator
from callboard.launch.nodes.coordination.counters import CounterFile
from callboard.launch.nodes.node import NodeContext
from callboard.launch.nodes.reports.messages import Report, RunState, plain_message
from callboard.launch.run_directory.layout import RunDirectory


@pytest.fixture
def sent():
    return []


@pytest.fixture
def make_coordinator(tmp_path, sent):
    incarnation_ids = map("incarnation-{}".format, itertools.count())

    def make(clock=time.monotonic, controlled=False, start="first", **settings):
        directory = RunDirectory(tmp_path)
        directory.create()
        directory = directory.identified()
        context = NodeContext(
            "coordinator/0",
            next(incarnation_ids),
            threading.Event(),
            lambda kind, content: sent.append((kind, content)),
            None,
        )
        experiment = Experiment(**{"agent": Impala(), "env": "CartPole-v1", **settings})
        return Coordinator(context, Run(experiment, experiment.layout(), directory, controlled, start=start), clock)

    return make


LEARNED = {"learner/final": 1.0}
"""What a learner reports once it has made its last step."""


def report(
    coordinator,
    name="actor/0",
    incarnation_id="a",
    sequence=1,
    steps=0,
    values=None,
    episodes=(),
    evaluation=None,
    known=None,
    short_of_data=0.0,
    at_rest=False,
    lease=None,
    **counts,
):
    report = Report(
        {"environment_steps": steps, **counts},
        values or {},
        episodes,
        evaluation,
        short_of_data=short_of_data,
        at_rest=at_rest,
        lease=lease,
    )
    return coordinator.report(name, incarnation_id, sequence, plain_message(report), known)


def test_a_report_that_comes_twice_counts_once(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, steps=100, episodes=[[10.0, 10]])
    _, steps, *_ = report(coordinator, steps=100, episodes=[[10.0, 10]])
    assert steps == 100
    report(coordinator, sequence=2, steps=150, episodes=[[30.0, 30]])
    status = coordinator.status()
    assert status["environment_steps"] == 150
    assert status["actor/episode_return"] == 20.0


def test_a_node_that_was_restarted_counts_from_where_it_died(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, incarnation_id="first", steps=100)
    _, steps, incarnations, *_ = report(coordinator, incarnation_id="second", steps=7)
    assert steps == 107
    assert incarnations == {"actor/0": "second"}


def test_a_late_report_of_the_incarnation_before_is_counted_but_changes_nothing_else(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, incarnation_id="first", steps=100)
    report(coordinator, incarnation_id="second", steps=7)
    _, steps, incarnations, *_ = report(coordinator, incarnation_id="first", sequence=2, steps=120, values={"x": 1.0})
    assert steps == 127
    assert incarnations == {"actor/0": "second"}
    assert "x" not in coordinator.status()


def test_a_run_ends_in_order_if_its_address_cannot_be_removed(make_coordinator, sent, tmp_path):
    coordinator = make_coordinator()
    coordinator.setup()
    report(coordinator, steps=100)
    # As a file of a file system that became read-only, it cannot be unlinked, though for another reason.
    (tmp_path / "coordinator.json").mkdir()
    coordinator.finish()
    assert [content["environment_steps"] for kind, content in sent if kind == "status"] == [100]


@pytest.mark.parametrize(
    "settings, refused, expected",
    [
        ({}, "", []),
        ({"listen": "all"}, "", ["the ports of this run are open to all machines (listen all)"]),
        ({}, "Operation not permitted", ["the kernel refuses packet filters (Operation not permitted)"]),
    ],
)
def test_open_ports_are_reported_in_one_line(make_coordinator, sent, monkeypatch, settings, refused, expected):
    monkeypatch.setattr("callboard.launch.nodes.coordination.coordinator.refusal", lambda: refused)
    coordinator = make_coordinator(**settings)
    coordinator.setup()
    coordinator.finish()
    lines = [str(content) for _, content in sent if "ports of this run" in str(content)]
    assert len(lines) == len(expected)
    assert all(text in line for text, line in zip(expected, lines, strict=True))


def test_actors_learn_which_learners_are_short_of_data(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, "learner/0", short_of_data=0.0)
    report(coordinator, "learner/1", short_of_data=2.5)
    assert RunState.of(report(coordinator)).short_of_data == {"learner/1": 2.5}
    report(coordinator, "learner/1", incarnation_id="new", short_of_data=0.0)
    assert RunState.of(report(coordinator, sequence=2)).short_of_data == {}
    # A late report of an earlier incarnation.
    report(coordinator, "learner/1", short_of_data=3.0)
    assert RunState.of(report(coordinator, sequence=3)).short_of_data == {}


def test_the_first_actor_of_a_new_run_waits_for_no_other_before_it_acts(make_coordinator):
    coordinator = make_coordinator(max_steps=1000, actors=2)
    state = RunState.of(report(coordinator, lease=(0, True)))
    assert state.step_limit == 250
    report(coordinator, sequence=2, steps=50)
    coordinator.step()
    another = make_coordinator(max_steps=1000, actors=2)
    state = RunState.of(report(another, sequence=3, steps=100, lease=(250, False)))
    assert state.step_limit == 250


def test_many_nodes_report_less_often(make_coordinator):
    coordinator = make_coordinator()
    assert RunState.of(report(coordinator)).report_seconds == 0.5
    for index in range(1000):
        state = RunState.of(report(coordinator, name=f"actor/{index}"))
    assert state.report_seconds == 2.0


def test_the_counters_outlive_the_coordinator(make_coordinator, tmp_path, sent):
    """No checkpoint was written since; the nodes that live report their totals again, the others are not forgotten."""
    now = 0.0
    coordinator = make_coordinator(lambda: now, max_steps=200)
    report(coordinator, "actor/0", steps=100)
    report(coordinator, "actor/1", steps=50)
    report(coordinator, "learner/0", learner_steps=9)
    coordinator.step()
    report(coordinator, "actor/0", sequence=2, steps=110)
    another = make_coordinator(max_steps=200)
    assert another.status()["environment_steps"] == 150 and another.status()["learner_steps"] == 9
    assert report(another, "actor/0", sequence=3, steps=130)[:2] == [False, 180]
    assert report(another, "actor/1", incarnation_id="new", steps=20)[:2] == [True, 200]
    another.finish()
    assert (
        CounterFile(Run(Experiment(Impala(), "CartPole-v1"), None, RunDirectory(tmp_path)))
        .load()
        .total("environment_steps")
        == 200
    )


def test_restarts_are_kept_when_the_coordinator_dies_and_a_resume_is_none(make_coordinator):
    coordinator = make_coordinator(lambda: 0.0)
    for incarnation_id in ("a", "b"):
        report(coordinator, incarnation_id=incarnation_id)
    report(coordinator, "learner/0")
    coordinator.step()
    another = make_coordinator(lambda: 0.0)
    report(another, incarnation_id="b", sequence=2)
    # This one died with the coordinator.
    report(another, "learner/0", incarnation_id="c")
    expected = {"actor/0": 1, "coordinator/0": 1, "learner/0": 1}
    assert another.status()["node_restarts"] == expected and another.status()["restarts"] == 3
    another.finish()
    resumed = make_coordinator(lambda: 0.0, start="second")
    for name in ("actor/0", "learner/0"):
        report(resumed, name, incarnation_id="d")
    assert resumed.status()["node_restarts"] == expected
    report(resumed, incarnation_id="e")
    assert {row["node"]: row["restarts"] for row in resumed.overview()["table"]} == {**expected, "actor/0": 2}


def test_rows_do_not_go_back_with_another_coordinator(make_coordinator, tmp_path):
    coordinator = make_coordinator(lambda: 0.0)
    report(coordinator, steps=10)
    coordinator.write_metrics()
    another = make_coordinator()
    another.write_metrics()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["environment_steps"] for row in rows] == [10, 10]


def test_learner_steps_never_go_back(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, "learner/0", learner_steps=219, values={"learner/step": 219})
    report(coordinator, "learner/0", incarnation_id="new", learner_steps=3, values={"learner/step": 203})
    status = coordinator.status()
    assert status["learner_steps"] == 222 and status["learner/step"] == 203


def test_a_pause_is_complete_once_learners_have_reported_that_they_rest(make_coordinator):
    coordinator = make_coordinator(controlled=True)
    coordinator.run_until(100, math.inf)
    report(coordinator, "learner/0", learner_steps=1)
    report(coordinator, steps=100)
    status = coordinator.status()
    assert status["paused"] and not status["at_rest"]
    report(coordinator, "learner/0", sequence=2, learner_steps=3, at_rest=True)
    status = coordinator.status()
    assert status["at_rest"] and status["learner_steps"] == 3
    # What it reported in this pause says nothing about the next.
    coordinator.run_until(200, math.inf)
    assert not coordinator.status()["paused"]
    report(coordinator, steps=200, sequence=2)
    status = coordinator.status()
    assert status["paused"] and not status["at_rest"]


@pytest.mark.parametrize("steps, limit", [(100, 3), (50, None)])
def test_a_run_that_is_ended_in_a_pause_makes_no_more_steps(make_coordinator, steps, limit):
    coordinator = make_coordinator(controlled=True)
    coordinator.run_until(100, math.inf)
    report(coordinator, steps=steps)
    report(coordinator, "learner/0", learner_steps=3)
    for _ in range(2):
        coordinator.request_stop("its session has ended")
    state = RunState.of(report(coordinator, "learner/0", sequence=2, learner_steps=3))
    assert state.stopping and state.control.learner_limit == limit


def test_schedules_do_not_depend_on_the_time_of_day(make_coordinator, tmp_path, monkeypatch):
    now = 100.0
    coordinator = make_coordinator(lambda: now)
    coordinator.context.stop.set()  # `step` would wait otherwise.
    report(coordinator, steps=10)
    coordinator.step()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    now = 110.0
    report(coordinator, sequence=2, steps=30)
    coordinator.step()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["elapsed_seconds"] for row in rows] == [0.0, 10.0]
    assert rows[1]["actor/steps_per_second"] == 2.0


def test_a_counter_file_that_was_cut_is_not_read(make_coordinator, tmp_path):
    coordinator = make_coordinator()
    report(coordinator, steps=10)
    coordinator.finish()
    path = RunDirectory(tmp_path).counters
    path.write_bytes(path.read_bytes()[:-3])
    assert make_coordinator().status()["environment_steps"] == 0


def test_counters_come_from_the_last_checkpoint(make_coordinator, tmp_path):
    checkpoint = tmp_path / "checkpoints" / "000000000005"
    checkpoint.mkdir(parents=True)
    (checkpoint / "counters.json").write_text(json.dumps({"actor/0#old": {"environment_steps": 1000}}))
    write_manifest(checkpoint)
    coordinator = make_coordinator()
    assert report(coordinator, steps=5)[1] == 1005
    assert coordinator.status()["learner_steps"] == 5


def test_stops_at_the_step_limit(make_coordinator, sent):
    coordinator = make_coordinator(max_steps=100, evaluator=False)
    assert not report(coordinator, steps=99)[0]
    assert sent == []
    assert report(coordinator, steps=101, sequence=2)[0]
    assert sent == []
    report(coordinator, "learner/0", values=LEARNED)
    assert sent == [("stop", "reached max_steps (101 environment steps)")]


def test_the_final_policy_is_evaluated_before_the_run_stops(make_coordinator, sent):
    coordinator = make_coordinator(max_steps=100, stop_return=475.0)
    assert report(coordinator, steps=101)[0]
    # An evaluation that was on its way.
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 10.0})
    assert [kind for kind, _ in sent] == ["message"]
    final = {"evaluator/return": 500.0, "evaluator/final": 1.0}
    for sequence in (2, 3):
        report(coordinator, "evaluator/0", sequence=sequence, evaluation=final)
    assert sent[1:] == [("stop", "reached max_steps (101 environment steps)")]


def test_a_final_evaluation_without_a_result_ends_the_run(make_coordinator, sent):
    coordinator = make_coordinator(max_steps=100)
    report(coordinator, steps=101)
    report(coordinator, "evaluator/0", evaluation={"evaluator/final": 1.0})
    assert [kind for kind, _ in sent] == ["message", "stop"]


@pytest.mark.parametrize("heard, seconds", [(False, 61), (True, 161)])
def test_an_evaluator_that_is_silent_or_slow_does_not_hold_up_the_end(make_coordinator, sent, heard, seconds):
    now = 0.0
    coordinator = make_coordinator(lambda: now, max_steps=100, evaluation_timeout=40.0)
    coordinator.context.stop.set()  # `step` would wait otherwise.
    report(coordinator, steps=101)
    report(coordinator, "learner/0", values=LEARNED)
    sequence = 0
    while "stop" not in dict(sent):
        assert now < seconds
        now += 1.0
        sequence += 1
        if heard:
            report(coordinator, "evaluator/0", sequence=sequence)
        coordinator.step()
    assert now == seconds
    assert ("message", "the final policy was not evaluated in time") in sent


def test_stops_at_the_return_and_says_so_once(make_coordinator, sent):
    coordinator = make_coordinator(stop_return=475.0)
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 474.9})
    assert sent == []
    for sequence in (2, 3):
        report(coordinator, "evaluator/0", sequence=sequence, evaluation={"evaluator/return": 480.0})
    ((kind, reason),) = sent
    assert kind == "stop" and "480.0" in reason and "475" in reason


def test_actors_stop_at_once_when_a_rule_ends_the_run(make_coordinator, sent):
    now = [0.0]
    coordinator = make_coordinator(lambda: now[0], actors=1, max_seconds=10)
    lease = {"lease": [0, True], "known": None, "short_of_data": 0.0}
    first = RunState.of(report(coordinator, steps=8, **lease))
    assert not first.stopping and first.step_limit > 8
    now[0] = 10.0
    second = RunState.of(report(coordinator, sequence=2, steps=16, **lease))
    assert second.stopping and second.step_limit == 16
    coordinator.step()
    assert ("stop", "reached max_seconds (10 s, 16 environment steps)") not in sent  # The final evaluation comes first.
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 1.0, "evaluator/final": 1.0})
    assert sent[-1] == ("stop", "reached max_seconds (10 s, 16 environment steps)")


def test_seconds_and_patience_outlive_the_coordinator(make_coordinator, sent):
    now = [0.0]
    for value in (3.0, 2.0):
        now[0] += 100.0
        coordinator = make_coordinator(lambda: now[0], max_seconds=10, patience=2)
        evaluation = {"evaluator/return": value, "evaluator/best_return": 3.0}
        report(coordinator, "evaluator/0", f"of {value}", evaluation=evaluation)
        now[0] += 4.0
        coordinator.step()
    assert not any(kind == "stop" for kind, _ in sent)
    coordinator = make_coordinator(lambda: now[0], max_seconds=10, patience=2)
    now[0] += 2.0
    assert coordinator.limits.rules.out_of_time
    report(coordinator, "evaluator/0", "again", evaluation={"evaluator/return": 1.0, "evaluator/best_return": 3.0})
    assert sent[-1][0] == "stop" and sent[-1][1].startswith("patience is over: the last 2")


def test_a_condition_on_any_metric_ends_the_run(make_coordinator, sent):
    coordinator = make_coordinator(evaluator=False, stop_when="learner/loss < 1, actor/episode_return >= 20")
    report(coordinator, steps=9, episodes=[[10.0, 10]], values={"learner/loss": 1.5})
    coordinator.step()
    assert not coordinator.limits.stopping
    report(coordinator, sequence=2, steps=10, episodes=[[40.0, 10]])
    coordinator.step()
    assert sent[-1][1].startswith("actor/episode_return is 25, and actor/episode_return >= 20 was to end the run")


def test_evaluations_and_metrics_are_written_as_rows(make_coordinator, tmp_path):
    coordinator = make_coordinator()
    report(coordinator, steps=10, values={"learner/loss": float("nan")}, learner_steps=3)
    coordinator.write_metrics()
    coordinator.write_metrics()  # Nothing new: no row.
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 12.0})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert rows[0]["environment_steps"] == 10 and rows[0]["learner_steps"] == 3 and rows[0]["learner/loss"] is None
    assert rows[1]["evaluator/return"] == 12.0


def test_progress_between_rare_reports_is_shown_and_counted_once(make_coordinator, sent):
    now = [0.0]
    coordinator = make_coordinator(lambda: now[0], max_steps=1000)

    def shown():
        return [(content["environment_steps"], content["learner_steps"]) for kind, content in sent if kind == "status"]

    report(coordinator, steps=100, learner_steps=10)
    coordinator.step()
    coordinator.display.show_progress(1, 1)  # Too soon after the last status.
    assert shown() == [(100, 10)]
    for steps in (30, 60, 950):
        now[0] += 10.0
        coordinator.display.show_progress(steps, 5)
    assert shown()[1:] == [(130, 15), (160, 15), (1050, 15)]
    assert sent[2][1]["actor/steps_per_second"] == pytest.approx(3.0)
    assert coordinator.limits.steps_left == 900 and not coordinator.limits.stopping
    now[0] += 10.0
    report(coordinator, sequence=2, steps=190, learner_steps=20)
    coordinator.step()
    assert shown()[-1] == (190, 20)
    assert coordinator.status()["environment_steps"] == 190


def test_every_evaluation_is_reported_however_soon_it_follows(make_coordinator, sent):
    coordinator = make_coordinator()
    for sequence, value in enumerate([12.0, 13.0, 14.0], start=1):
        report(coordinator, "evaluator/0", sequence=sequence, evaluation={"evaluator/return": value})
        coordinator.step()
    assert [content["evaluator/return"] for kind, content in sent] == [12.0, 13.0, 14.0]


def test_incarnations_are_numbered_over_restarts_of_the_coordinator_and_resumes_of_the_run(make_coordinator):
    coordinator = make_coordinator()
    starts = [
        ("actor/0", "a"),
        ("actor/1", "b"),
        ("actor/0", "a"),
        ("actor/0", "c"),
        ("actor/0", "d"),
        ("actor/0", "e"),
    ]
    assert [coordinator.begin_incarnation(*start) for start in starts] == [0, 0, 0, 1, 2, 3]
    report(coordinator, incarnation_id="e", steps=7)
    coordinator.finish()
    again = make_coordinator()
    assert again.begin_incarnation("actor/0", "e") == 3
    assert again.begin_incarnation("actor/0", "f") == 4
    assert again.begin_incarnation("actor/1", "g") == 1


def test_loggers_get_the_rows_that_are_written_until_the_end(make_coordinator, tmp_path, monkeypatch):
    (tmp_path / "steps_logger.py").write_text(
        "from callboard.launch.loggers.metric_logger import MetricLogger\n"
        "SEEN = []\n"
        "class Steps(MetricLogger):\n"
        "    def write(self, row):\n        SEEN.append(row['environment_steps'])\n"
        "    def close(self):\n        SEEN.append('closed')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    coordinator = make_coordinator(loggers="steps_logger:Steps")
    report(coordinator, steps=5)
    coordinator.write_metrics()
    coordinator.finish()
    import steps_logger

    assert steps_logger.SEEN == [5, 5, "closed"]


def test_the_status_shows_whether_replay_is_a_queue(make_coordinator):
    statuses = [make_coordinator(agent=agent).status() for agent in ("impala", "ppo", "a3c", "apex")]
    assert [status["has_queue"] for status in statuses] == [True, True, True, False]


def test_a_run_without_its_directory_ends_at_the_next_step(make_coordinator, tmp_path):
    coordinator = make_coordinator()
    coordinator.step()
    report(coordinator, steps=100, evaluation={"evaluator/return": 5.0})
    shutil.rmtree(tmp_path)
    report(coordinator, sequence=2, steps=200, evaluation={"evaluator/return": 6.0})
    with pytest.raises(CallboardError, match=f"^the run directory {tmp_path} was renamed or deleted while the run was"):
        coordinator.step()
    with pytest.raises(CallboardError, match="was renamed or deleted"):
        coordinator.display.show_progress(1, 1)
    coordinator.finish()
    assert not tmp_path.exists()
    tmp_path.mkdir()
