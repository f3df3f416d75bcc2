"""The coordinator: counters that survive repeats and restarts, and the decision to stop."""

import json
import threading

import pytest

from callboard.agents.impala import Impala
from callboard.launch.coordinator import Coordinator, Counters
from callboard.launch.experiment import Experiment, Run
from callboard.launch.role import NodeContext
from callboard.launch.run_directory import RunDirectory


@pytest.fixture
def told():
    return []


@pytest.fixture
def make_coordinator(tmp_path, told):
    def make(**settings):
        directory = RunDirectory(tmp_path)
        directory.create()
        context = NodeContext(
            "coordinator/0", "c", threading.Event(), lambda kind, content: told.append((kind, content)), None
        )
        experiment = Experiment(agent=Impala(), **{"env": "CartPole-v1", **settings})
        return Coordinator(context, Run(experiment, experiment.layout(), directory))

    return make


def report(coordinator, name="actor/0", identity="a", sequence=1, steps=0, values=None, episodes=(), evaluation=None):
    answer = coordinator.report(
        name, identity, sequence, {"environment_steps": steps}, values or {}, list(episodes), evaluation
    )
    return answer[:4]


def test_a_report_that_comes_twice_counts_once(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, steps=100, episodes=[[10.0, 10]])
    _, steps, _, _ = report(coordinator, steps=100, episodes=[[10.0, 10]])
    assert steps == 100
    report(coordinator, sequence=2, steps=150, episodes=[[30.0, 30]])
    status = coordinator.status()
    assert status["environment_steps"] == 150
    assert status["actor/episode_return"] == 20.0


def test_a_node_that_was_restarted_counts_from_where_it_died(make_coordinator):
    coordinator = make_coordinator()
    report(coordinator, identity="first life", steps=100)
    _, steps, _, identities = report(coordinator, identity="second life", steps=7)
    assert steps == 107
    assert identities == {"actor/0": "second life"}


def test_a_coordinator_that_was_restarted_is_told_again(make_coordinator):
    counters = Counters({"actor/0#a": {"environment_steps": 80}, "actor/1#b": {"environment_steps": 50}})
    counters.update("actor/0#a", {"environment_steps": 120})
    assert counters.total("environment_steps") == 170


def test_a_late_report_does_not_turn_the_counter_back():
    counters = Counters()
    counters.update("actor/0#a", {"environment_steps": 120})
    counters.update("actor/0#a", {"environment_steps": 80})
    assert counters.total("environment_steps") == 120


def test_counters_come_from_the_last_checkpoint(make_coordinator, tmp_path):
    checkpoint = tmp_path / "checkpoints" / "000000000005"
    checkpoint.mkdir(parents=True)
    (checkpoint / "counters.json").write_text(json.dumps({"actor/0#old": {"environment_steps": 1000}}))
    coordinator = make_coordinator()
    assert report(coordinator, steps=5)[1] == 1005


def test_stops_at_the_step_limit(make_coordinator, told):
    coordinator = make_coordinator(max_steps=100)
    assert not report(coordinator, steps=99)[0]
    assert told == []
    assert report(coordinator, steps=101, sequence=2)[0]
    assert told == [("stop", "101 environment steps are done")]


def test_stops_at_the_return_and_says_so_once(make_coordinator, told):
    coordinator = make_coordinator(stop_return=475.0)
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 474.9})
    assert told == []
    for sequence in (2, 3):
        report(coordinator, "evaluator/0", sequence=sequence, evaluation={"evaluator/return": 480.0})
    ((kind, reason),) = told
    assert kind == "stop" and "480.0" in reason and "475" in reason


def test_evaluations_and_metrics_are_written_as_rows(make_coordinator, tmp_path):
    coordinator = make_coordinator()
    report(coordinator, steps=10, values={"learner/loss": float("nan"), "learner_steps": 3})
    coordinator.write_metrics()
    coordinator.write_metrics()  # Nothing new: no row.
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 12.0})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert rows[0]["environment_steps"] == 10 and rows[0]["learner_steps"] == 3 and rows[0]["learner/loss"] is None
    assert rows[1]["evaluator/return"] == 12.0


def test_every_evaluation_is_told_however_soon_it_follows(make_coordinator, told):
    coordinator = make_coordinator()
    for sequence, value in enumerate([12.0, 13.0, 14.0], start=1):
        report(coordinator, "evaluator/0", sequence=sequence, evaluation={"evaluator/return": value})
        coordinator.step()
    assert [content["evaluator/return"] for kind, content in told] == [12.0, 13.0, 14.0]


def test_the_gap_between_known_and_unseen_levels_is_told(make_coordinator, tmp_path):
    coordinator = make_coordinator(env="procgen:coinrun", env_options={"num_levels": 10})
    report(coordinator, steps=10, episodes=[[8.0, 5], [6.0, 5]])
    report(coordinator, "evaluator/0", evaluation={"evaluator/return": 4.0})
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert row["evaluator/generalisation_gap"] == 3.0
