"""The evaluator node: when it evaluates, what it reports, and which policy it keeps."""

import pytest
from local_nodes import small_run

from callboard.launch.run_directory.policy_weights import read_policy

LENGTH = 5
OPTIONS = ("--env-options.max_episode_steps", LENGTH, "--evaluation-episodes", 4, "--evaluation-envs", 2)


@pytest.fixture
def nodes(tmp_path):
    with small_run("impala-cartpole", tmp_path, *OPTIONS, "--evaluate-every", 100, "--max-steps", 1000) as nodes:
        yield nodes
        nodes["evaluator/0"].finish()


def status_after(nodes, steps):
    """Lets the evaluator step once the actors have made so many environment steps; returns the coordinator's status."""
    coordinator, evaluator = nodes["coordinator/0"], nodes["evaluator/0"]
    coordinator.report("actor/0", "a", steps, [{"environment_steps": steps}])
    coordinator.step()
    evaluator.report()
    evaluator.step()
    return coordinator.status()


@pytest.mark.slow("daily")
def test_it_evaluates_after_every_interval_and_keeps_the_best_policy(nodes, tmp_path):
    assert "evaluator/return" not in status_after(nodes, 99)
    status = status_after(nodes, 150)
    assert (status["evaluator/return"], status["evaluator/return_std"]) == (LENGTH, 0.0)
    assert (status["evaluator/return_min"], status["evaluator/return_max"]) == (LENGTH, LENGTH)
    assert (status["evaluator/episode_length"], status["evaluator/environment_steps"]) == (LENGTH, 150)
    best = tmp_path / "checkpoints" / "best.npz"
    assert float(read_policy(best).further["mean_return"]) == LENGTH
    kept = best.stat().st_mtime_ns
    # The next one is due at 200.
    assert status_after(nodes, 199)["evaluator/environment_steps"] == 150
    assert status_after(nodes, 200)["evaluator/environment_steps"] == 200
    # An equal score is no better one.
    assert best.stat().st_mtime_ns == kept


@pytest.mark.slow("daily")
def test_at_the_end_it_evaluates_the_final_weights_once(nodes):
    status = status_after(nodes, 1000)
    assert "evaluator/return" not in status
    nodes["learner/0"].end_learning()
    status = status_after(nodes, 1001)
    assert status["evaluator/final"] == 1.0 and status["evaluator/return"] == LENGTH
    again = status_after(nodes, 1002)
    assert again["evaluator/environment_steps"] == status["evaluator/environment_steps"]
