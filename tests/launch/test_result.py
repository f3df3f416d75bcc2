"""What sessions return: the state of a run, and the result of an evaluation."""

from callboard.agents.policies.acting import Episode
from callboard.launch.result import EvaluationResult, Result, evaluation_result, result_of


def test_a_result_has_the_counters_and_the_metrics_of_a_status():
    counters = {"environment_steps": 30, "learner_steps": 4, "episodes": 2}
    metrics = {**counters, "elapsed_seconds": 9.0, "restarts": 1, "actor/episode_return": 1.5, "learner/loss": 0.1}
    status = {**metrics, "stopping": True, "max_steps": 100, "node_restarts": {"actor/0": 1}}
    expected = Result(**counters, seconds=9.0, episode_return=1.5, score=None, metrics=metrics, over=True)
    assert result_of(status) == expected
    assert result_of({**status, "evaluator/return": 7.0}).score == 7.0


def test_the_result_of_an_evaluation_has_every_episode_and_their_mean_and_deviation():
    episodes = [Episode(0, 1.0, 10), Episode(1, 4.0, 20)]
    found = evaluation_result(episodes, {"evaluator/red/return": 2.0})
    assert found == EvaluationResult(2.5, 1.5, [1.0, 4.0], [10, 20], {"red/return": 2.0})
