"""When the stages of a curriculum begin."""

import pytest

from callboard.launch.experiments.curriculum import Stage
from callboard.launch.nodes.coordination.run_hooks import CurriculumProgress
from callboard.launch.nodes.episodes.metric_windows import MetricWindows

EASY, MEDIUM, HARD = {"size": 1}, {"size": 2}, {"size": 3}


def nothing():
    return {}


def test_stages_begin_at_their_steps():
    progress, windows = CurriculumProgress([Stage(EASY), Stage(HARD, steps=10)], 0), MetricWindows()
    assert progress.next_stage(0, nothing, windows).task == EASY
    assert progress.next_stage(9, nothing, windows) is None
    assert progress.next_stage(10, nothing, windows).task == HARD
    assert progress.next_stage(99, nothing, windows) is None and progress.begun == 2


@pytest.mark.parametrize("when", ["episode/success >= 0.8", "episode/success_min >= 0.8"])
def test_a_stage_does_not_end_by_the_episodes_of_an_easier_one(when):
    stages = [Stage(EASY), Stage(MEDIUM, when=when, episodes=2), Stage(HARD, when=when, episodes=2)]
    progress, windows = CurriculumProgress(stages, 1), MetricWindows()
    windows.set_task(EASY)
    windows.add([[EASY, {"episode/success": [1.0]}]])
    assert progress.next_stage(0, nothing, windows) is None
    windows.add([[EASY, {"episode/success": [1.0]}]])
    assert progress.next_stage(0, nothing, windows).task == MEDIUM
    windows.set_task(MEDIUM)
    windows.add([[EASY, {"episode/success": [1.0, 1.0]}], [MEDIUM, {"episode/success": [0.0, 1.0]}]])
    assert progress.next_stage(0, nothing, windows) is None
    windows.add([[MEDIUM, {"episode/success": [1.0]}]])
    assert progress.next_stage(0, nothing, windows).task == HARD


def test_an_evaluation_counts_for_one_stage():
    stages = [Stage(EASY), *(Stage(task, when="evaluator/return > 1") for task in (MEDIUM, HARD))]
    progress, windows = CurriculumProgress(stages, 1), MetricWindows()
    assert progress.next_stage(0, nothing, windows) is None
    progress.add_evaluation({"evaluator/return": 2.0})
    assert progress.next_stage(0, nothing, windows).task == MEDIUM
    assert progress.next_stage(0, nothing, windows) is None
    progress.add_evaluation({"evaluator/return": 2.0})
    assert progress.next_stage(0, nothing, windows).task == HARD


def test_any_other_metric():
    progress = CurriculumProgress([Stage(EASY), Stage(HARD, when="learner/entropy < 0.5")], 1)
    assert progress.next_stage(0, lambda: {"learner/entropy": 0.6}, MetricWindows()) is None
    assert progress.next_stage(0, lambda: {"learner/entropy": 0.4}, MetricWindows()).task == HARD


def test_a_resumed_run_continues_with_its_stage():
    progress = CurriculumProgress([Stage(EASY), Stage(MEDIUM, steps=5), Stage(HARD, steps=10)], 2)
    assert progress.next_stage(7, nothing, MetricWindows()) is None
    assert progress.next_stage(10, nothing, MetricWindows()).task == HARD
    # A curriculum that was shortened.
    assert CurriculumProgress([Stage(EASY)], 5).next_stage(7, nothing, MetricWindows()) is None
