"""The inline launcher: one thread, and the same result in every run."""

import json
import pathlib
import re
from types import SimpleNamespace

import launchpad as lp
import numpy as np
import pytest

from callboard.errors import CallboardError, with_deviation
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.launchers import inline
from callboard.launch.nodes.coordination import run_status
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory


@pytest.mark.slow
def test_inline_ends_at_the_step_limit_is_reproducible_to_the_last_bit_and_leaves_nothing(start, tmp_path):
    weights, metrics = [], []
    for name in ("a", "b"):
        run_dir = tmp_path / name
        arguments = ["--recipe", "impala-cartpole", "--launcher", "inline", "--max-steps", 2400, "--seed", 7]
        arguments += ["--run-dir", run_dir, "--evaluate-every", 900, "--evaluation-episodes", 20]
        run = start("train", *arguments, "--stop-return", 501)
        assert run.wait() == 0, run.text()
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        steps = rows[-1]["environment_steps"]
        assert 2400 <= steps < 2400 + 16  # One timestep of an actor.
        (final,) = [row for row in rows if "evaluator/final" in row]
        score = f"{with_deviation(final['evaluator/return'], final['evaluator/return_std'])} over 20 episodes"
        over = f"The run is over: reached max_steps ({steps:,} environment steps). Score: {score}."
        last = run.end_line()
        assert last.startswith(over) and last.endswith(f"Run directory: {name}")
        best = " --checkpoint best" if final["evaluator/best_return"] > final["evaluator/return"] else ""
        assert f"\nNext:\n  callboard evaluate {name}{best}\n  callboard train --resume" in run.text()
        assert final["evaluator/environment_steps"] == steps
        assert final["evaluator/learner_step"] == rows[-1]["learner_steps"]
        assert (run_dir / "checkpoints" / "best.npz").exists()
        assert run.leftovers() == [] == list((run_dir / "tmp").glob("*"))
        checkpoint = max((run_dir / "checkpoints").glob("0*"))
        with np.load(checkpoint / "policy.npz") as file:
            weights.append({key: file[key].tobytes() for key in file.files})
        metrics.append([{k: v for k, v in row.items() if not re.search("second|memory|^time", k)} for row in rows])
    assert weights[0] == weights[1]
    assert len(metrics[0]) > 3
    assert metrics[0] == metrics[1]


def test_nodes_of_the_user_s_own_are_refused_before_anything_starts():
    program = lp.Program("own")
    program.add_node(lp.PyNode(print), "own")
    with pytest.raises(CallboardError, match='which own/0 would block; use launcher="threads" or'):
        inline.run(program, None, None)


@pytest.mark.parametrize("released, left", [(1, 4), (5, 0)])
def test_samples_that_are_lost_are_missed_once(released, left):
    def limiter(inserted, sampled):
        stats = {"insert_stats": inserted, "sample_stats": sampled}
        stats = {name: SimpleNamespace(completed=number) for name, number in stats.items()}
        return SimpleNamespace(samples_per_insert=8.0, min_size_to_sample=10, min_diff=80.0, **stats)

    tables = {"replay": SimpleNamespace(rate_limiter_info=limiter(0, 0))}
    dataset = SimpleNamespace(items_per_batch=8, table="replay", further=())
    learner = SimpleNamespace(replay=SimpleNamespace(dataset=dataset))
    limit = inline._LearningLimit(learner, SimpleNamespace(tables_at_start=tables, tables=lambda: tables))
    assert [limit.takes_batch(written) for written in (9, 10, 11, 11)] == [False, False, True, False]
    # Of 15 items five batches may be learned from, of which Reverb has released these.
    tables["replay"] = SimpleNamespace(rate_limiter_info=limiter(15, 8 * released))
    assert limit.takes_batch(15)
    limit.misses_batch()
    assert [limit.takes_batch(15) for _ in range(5)] == [True] * left + [False] * (5 - left)
    assert limit.takes_batch(16) and not limit.takes_batch(16)


@pytest.mark.slow
def test_learner_steps_are_exact_also_after_a_resume(tmp_path, monkeypatch):
    monkeypatch.setattr(run_status, "_STATUS_SECONDS", 0.0)
    small = ["--env-options.max_episode_steps=9", "--agent.network.hidden-sizes=[4]", "--agent.batch-size=8"]
    evaluation = ["--evaluation-episodes=2", "--evaluation-envs=2", "--agent.unroll-length=5"]
    options = ["--env=CartPole-v1", *small, *evaluation, f"--run-dir={tmp_path}", "--max-learner-steps=7"]
    experiment = parse_experiment("impala", {}, [*options, "--checkpoint-every-steps=2"])
    shown = []
    monitor = SimpleNamespace(notify=lambda text: None, status=lambda status: shown.append(status["learner_steps"]))
    for resume in (False, True):
        outcome = run(experiment, "inline", monitor, resume=resume)
        assert outcome.exit_code == 0, outcome
        assert outcome.reason == "reached max_learner_steps (7 learner steps)"
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        final = [row for row in rows if "evaluator/final" in row]
        assert final[-1]["evaluator/learner_step"] == rows[-1]["learner_steps"] == 7
        assert Checkpoints(RunDirectory(tmp_path)).newest_step() == 7
        assert shown == sorted(shown) and shown[-1] == 7
    assert len(final) == 2


@pytest.mark.slow
def test_schedules_follow_the_steps_of_the_run_and_continue_after_a_resume(tmp_path):
    small = ["--env-options.max_episode_steps=9", "--agent.network.hidden-sizes=[4]", "--agent.batch-size=8"]
    rates = ["--agent.entropy-cost={start: 4000, steps: 4000}", "--agent.optimizer.learning-rate={start: 0.001}"]
    options = ["--env=CartPole-v1", *small, *rates, f"--run-dir={tmp_path}", "--no-evaluator"]
    monitor = SimpleNamespace(notify=lambda text: None, status=lambda status: None)
    for max_steps in (1500, 3000):
        experiment = parse_experiment("impala", {}, [*options, f"--max-steps={max_steps}"])
        assert run(experiment, "inline", monitor, resume=max_steps > 1500).ended
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        # The steps of the run before the learner's last step: of a sequence of 20 timesteps after it, none was learned.
        known = 4000 - rows[-1]["learner/scheduled_entropy_cost"]
        assert known % 16 == 0 and max_steps - 21 * 16 < known <= max_steps
        assert rows[-1]["learner/scheduled_learning_rate"] == pytest.approx(1e-3 * (1 - known / max_steps))


@pytest.mark.slow
def test_a_run_of_slow_steps_shows_its_progress_between_reports(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[1] / "environments")
    small = ["--actors=1", "--envs-per-actor=1", "--agent.network.hidden-sizes=[4]", "--no-evaluator"]
    options = ["--env=slow_environments:SlowSteps", *small, f"--run-dir={tmp_path}", "--max-steps=150"]
    experiment = parse_experiment("impala", {}, options)
    shown = []
    monitor = SimpleNamespace(notify=lambda text: None, status=lambda status: shown.append(status["environment_steps"]))
    assert run(experiment, "inline", monitor).ended
    assert len(shown) > 3 and shown == sorted(shown) and 20 <= shown[1] <= 80 and shown[-1] == 150
