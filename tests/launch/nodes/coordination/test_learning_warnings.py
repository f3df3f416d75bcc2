"""Warnings about learning that goes wrong: each is provoked once, and what is right is left alone."""

import pathlib
import re
from typing import Literal

import pytest

from callboard.agents.registry import agent_class
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.nodes.coordination.learning_warnings import LearningWarnings
from callboard.launch.run_directory.layout import RunDirectory


def warnings_of(path: pathlib.Path, agent: str, mode: Literal["greedy", "sampled"] = "greedy", **settings):
    made = agent_class(agent)(**settings)
    experiment = Experiment(made, env="CartPole-v1", max_steps=100_000, evaluation_mode=mode)
    return LearningWarnings(Run.of(experiment, check_experiment(experiment), RunDirectory(path)))


def lines_of(warnings: LearningWarnings, values, rows: int = 40) -> list[str]:
    """The lines of rows whose values are functions of the row's number."""
    lines = []
    for number in range(1, rows + 1):
        row = {name: value(number) if callable(value) else value for name, value in values.items()}
        lines += warnings.new({"learner_steps": number, **row})
    return lines


LIMITED = {
    "actor/episode_return": -204.0,
    "actor/episode_length": 200.0,
    "evaluator/return": -200.0,
    "evaluator/episode_length": 200.0,
}


def scores(value, best: float):
    return {"evaluator/return": value, "evaluator/best_return": best, "evaluator/return_std": 10.0}


PROVOKED = {
    "gradient": (
        "apex",
        {"learner/gradient_norm": 65_000.0},
        {"learner/gradient_norm": lambda number: 65_000.0 if number % 19 else 30.0},
        r"learner/gradient_norm stays above 100 .*\(6.5e\+04, clipped to 40\).* try a larger agent.optimizer.max",
    ),
    "entropy": (
        "impala",
        {"learner/entropy": 0.001, "actor/episode_return": 9.5},
        {"learner/entropy": 0.001, "actor/episode_return": lambda number: 9.5 * number},
        r"learner/entropy is 0.001 of at most 0.69, .*no better than at first.* try a larger agent.entropy_cost",
    ),
    "return": (
        "apex",
        {"actor/episode_return": lambda number: 20.0 if number < 13 else 400.0 if number < 28 else 100.0},
        {"actor/episode_return": lambda number: 20.0 if number < 13 else 400.0 if number < 28 else 250.0},
        r"actor/episode_return has fallen from 400 to 100, and was 20 before: learning is unstable; try a lower agent",
    ),
    "temperature": (
        "sac",
        {"learner/temperature": lambda number: 1.1**number},
        {"learner/temperature": 12.0},
        r"learner/temperature grows without end .*at first 0.01\).* try a lower agent.target_entropy",
    ),
    "value": (
        "sac",
        {"learner/value": -64_000.0, "actor/episode_return": -20.0, "actor/episode_length": 20.0},
        {"learner/value": 1500.0, "actor/episode_return": 20.0, "actor/episode_length": 20.0},
        r"learner/value is -6.4e\+04, .* allow about 1e\+03: the values diverge; try lower learning rates",
    ),
    "lag": (
        "impala",
        {"learner/policy_lag": 17.0},
        {"learner/policy_lag": lambda number: 17.0 if number % 19 else 5.0},
        r"learner/policy_lag stays above 10 \(17\): .*; try agent.batch_size 64, or fewer actors",
    ),
    "support": (
        "apex",
        {"learner/support_ends": 0.3},
        {"learner/support_ends": lambda number: 0.3 if number % 19 else 0.1},
        r"learner/support_ends stays above 0.2 \(0.3\): the range of values is too narrow: .* agent.value_max",
    ),
    "greedy": (
        "impala",
        {"actor/episode_return": lambda number: 0.01 * number, "evaluator/return": 0.0},
        {"actor/episode_return": lambda number: 0.01 * number, "evaluator/return": lambda number: 0.008 * number},
        r"evaluations take the most likely actions .*: try evaluation_mode sampled, or train for longer",
    ),
    "no reward": (
        "ppo",
        {"actor/episode_return": 0.0, "evaluator/return": 0.0},
        {"actor/episode_return": lambda number: 0.01 if number == 3 else 0.0},
        r"every episode has returned 0, so no reward has been found .*: try rewards on the way",
    ),
    "time limit": (
        "ppo",
        {**LIMITED, "evaluator/return_std": 0.0},
        {**LIMITED, "evaluator/return_std": 0.0, "evaluator/return": -13.0, "evaluator/episode_length": 13.0},
        r"last 2 evaluations ended after 200 steps, as at a time limit, with a return of -200: .* agent.entropy_cost",
    ),
    "lost": (
        "ppo",
        {"actor/episode_return": 20.0, **scores(lambda number: 500.0 if number < 20 else 200.0, 500.0)},
        {"actor/episode_return": 20.0, **scores(lambda number: 500.0 if number % 2 else 200.0, 500.0)},
        r"evaluator/return is 200, and was 500 at best: .*; the best one is kept, see callboard evaluate RUN --check",
    ),
}


@pytest.mark.parametrize("kind", PROVOKED)
def test_what_goes_wrong_is_said_once_in_one_line(tmp_path, kind):
    agent, wrong, right, line = PROVOKED[kind]
    found = lines_of(warnings_of(tmp_path, agent), wrong)
    assert len(found) == 1 and "\n" not in found[0]
    assert re.search(line, found[0])
    assert not lines_of(warnings_of(tmp_path, agent), right)


def test_rows_without_new_learner_steps_do_not_count(tmp_path):
    warnings = warnings_of(tmp_path, "impala")
    assert not lines_of(warnings, {"learner_steps": 7, "learner/gradient_norm": 65_000.0})


def test_evaluations_that_sample_are_not_compared(tmp_path):
    warnings = warnings_of(tmp_path, "impala", mode="sampled")
    assert not lines_of(warnings, PROVOKED["greedy"][1])


def test_values_of_rewards_as_they_are_are_compared_with_the_returns(tmp_path):
    warnings = warnings_of(tmp_path, "sac", normalize_rewards=False)
    found = lines_of(warnings, {**PROVOKED["value"][1], "learner/value": 1500.0})
    assert re.search(r"learner/value is 1.5e\+03, .* allow about 100:", found[0])


def test_the_remedy_fits_what_is_set_already(tmp_path):
    ppo = lines_of(warnings_of(tmp_path, "ppo"), {"learner/gradient_norm": 65_000.0})
    assert "try a larger agent.optimizer.max_gradient_norm" in ppo[0]
    apex = lines_of(warnings_of(tmp_path, "apex", normalize_rewards=False), {"learner/gradient_norm": 65_000.0})
    assert "try agent.normalize_rewards true" in apex[0]


def test_a_return_that_falls_as_tasks_become_harder_is_no_warning(tmp_path):
    stages = [{"task": {"length": 2}}, {"task": {"length": 9}, "steps": 50_000}]
    experiment = Experiment("apex", env="own_callbacks:Walk", max_steps=100_000, curriculum=stages)
    run = Run.of(experiment, check_experiment(experiment), RunDirectory(tmp_path))
    assert not lines_of(LearningWarnings(run), PROVOKED["return"][1])


@pytest.mark.parametrize(
    "first, best, final, std, said",
    [
        (0.0, 1.0, 0.0, 0.0, True),
        (-768.0, 6.8, -34.6, 80.0, False),
        (-768.0, 6.8, -500.0, 80.0, True),
        (20.0, 500.0, 333.0, 150.0, False),
        (0.0, 500.0, 200.0, 310.0, False),
        (-200.0, -200.0, -200.0, 0.0, False),
    ],
)
def test_one_final_evaluation_is_enough_if_half_of_the_gain_and_more_than_its_spread_is_lost(
    tmp_path, first, best, final, std, said
):
    warnings = warnings_of(tmp_path, "ppo")
    row = {"learner_steps": 1, "actor/episode_return": first, "evaluator/return": best, "evaluator/best_return": best}
    assert not warnings.new(row)
    row = {**row, "learner_steps": 9, "evaluator/return": final, "evaluator/return_std": std}
    assert not warnings.new(row)
    warnings = warnings_of(tmp_path, "ppo")
    warnings.new({"learner_steps": 1, "actor/episode_return": first, "evaluator/return": best})
    found = warnings.new({**row, "evaluator/final": 1.0})
    assert bool(found) == said
    assert not said or "at best" in found[0]


@pytest.mark.parametrize(
    "change",
    [
        {"evaluator/return_std": 3.0},
        {"evaluator/return": 200.0},
        {"evaluator/best_return": -150.0},
        {"actor/episode_length": 1000.0},
    ],
)
def test_a_policy_that_reaches_an_end_or_is_paid_until_the_limit_is_no_warning(tmp_path, change):
    lines = lines_of(warnings_of(tmp_path, "ppo"), {**LIMITED, "evaluator/return_std": 0.0, **change})
    assert not any("as at a time limit" in line for line in lines)
