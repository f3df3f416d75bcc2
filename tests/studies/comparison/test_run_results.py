"""Reading runs: folders, URLs, runs that were resumed, and runs that are left out with a reason."""

import json
import math
import re

import numpy as np
import pytest
from synthetic_runs import write_metrics, write_run

from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.run_lock import Holder, run_lock
from callboard.studies.comparison.run_results import read_results


def only(path, **options):
    results = read_results([str(path)], **options)
    assert results.left_out == []
    (run,) = results.runs
    return run


def test_a_run_is_read_with_its_settings_and_values(tmp_path):
    write_run(tmp_path / "x", [(1000, 20.0), (2000, 90.0)], seed=7, options=["--agent.discount=0.9"], total=2500)
    run = only(tmp_path / "x")
    assert (run.seed, run.agent, run.env, run.settings["agent.discount"]) == (7, "impala", "CartPole-v1", 0.9)
    assert "seed" not in run.settings and "run_dir" not in run.settings
    np.testing.assert_array_equal(run.steps, [1000, 2000])
    np.testing.assert_array_equal(run.seconds, [1, 2])
    np.testing.assert_array_equal(run.values, [20, 90])
    assert (run.score, run.deviation, run.total_steps, run.total_seconds) == (90.0, 9.0, 2500, 2.5)


def test_a_metric_that_is_not_of_the_evaluator_has_a_value_in_each_of_its_rows(tmp_path):
    write_run(tmp_path / "x", [(1000, 20.0), (2000, 90.0)])
    run = only(tmp_path / "x", metric="learner/loss")
    np.testing.assert_array_equal(run.steps, [1000, 2000])
    np.testing.assert_array_equal(run.values, [1.0, 0.5])
    assert run.deviation is None


def test_a_run_without_environment_steps_is_measured_in_learner_steps(tmp_path):
    write_run(tmp_path / "x", [(0, 20.0), (0, 90.0)])
    rows = [json.loads(line) for line in (tmp_path / "x" / "metrics.jsonl").read_text().splitlines()]
    rows = [row | {"learner_steps": 100 * number} for number, row in enumerate(rows, 1)]
    (tmp_path / "x" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = only(tmp_path / "x")
    assert (run.counted, run.total_steps) == ("learner steps", 100 * len(rows))
    np.testing.assert_array_equal(run.steps, [1, 2])
    np.testing.assert_array_equal(run.values, [20, 90])
    of_loss = [row["learner_steps"] for row in rows if "learner/loss" in row]
    np.testing.assert_array_equal(only(tmp_path / "x", metric="learner/loss").steps, of_loss)


def test_seconds_continue_after_a_resume_and_lost_evaluations_do_not_count(tmp_path):
    write_run(tmp_path / "x", [(1000, 1.0), (2000, 2.0), (3000, 3.0)], elapsed=[10, 20, 30])
    # It continued from a checkpoint at 1,500 steps.
    write_metrics(tmp_path / "x", [(1900, 5.0), (2600, 6.0)], elapsed=[4, 9])
    run = only(tmp_path / "x")
    np.testing.assert_array_equal(run.steps, [1000, 1900, 2600])
    np.testing.assert_array_equal(run.seconds, [10, 34, 39])
    np.testing.assert_array_equal(run.values, [1, 5, 6])


def test_a_value_that_is_not_finite_is_no_value(tmp_path):
    write_run(tmp_path / "x", [(1000, 1.0), (2000, math.nan), (3000, 3.0)])
    np.testing.assert_array_equal(only(tmp_path / "x").values, [1, 3])


def test_a_folder_stands_for_the_runs_in_it_in_natural_order(tmp_path):
    for name in ("study/b/seed-10", "study/b/seed-2", "study/a/seed-1"):
        write_run(tmp_path / name, [(1000, 1.0)])
    (tmp_path / "study" / "a" / "seed-1" / "checkpoints" / "copy").mkdir()
    (tmp_path / "study" / "a" / "seed-1" / "checkpoints" / "copy" / "experiment.yaml").touch()
    names = [str(tmp_path / "study" / name) for name in ("a/seed-1", "b/seed-2", "b/seed-10")]
    assert [run.name for run in read_results([str(tmp_path / "study"), names[0]]).runs] == names


def test_a_run_that_is_linked_counts_once(tmp_path):
    for name in ("study/x", "disk/y"):
        write_run(tmp_path / name, [(1000, 1.0)])
    links = {"latest": "study/x", "far": "disk/y", "again": "disk/y", "loop": "study", "gone": "nowhere"}
    for link, target in links.items():
        (tmp_path / "study" / link).symlink_to(tmp_path / target)
    names = [str(tmp_path / "study" / name) for name in ("again", "x")]
    assert [run.name for run in read_results([str(tmp_path / "study")]).runs] == names


def test_runs_at_a_url_are_read(tmp_path):
    pytest.importorskip("fsspec")
    write_run(tmp_path / "seed-1", [(1000, 1.0)])
    write_run(tmp_path / "seed-2", [(1000, 3.0)])
    (tmp_path / "seed-2" / "lock").touch()
    results = read_results([f"file://{tmp_path}"])
    assert [(run.name, run.score) for run in results.runs] == [(f"file://{tmp_path}/seed-1", 1.0)]
    assert results.left_out == [f"file://{tmp_path}/seed-2 is left out: it is still running"]


def damaged_settings(path):
    (path / "experiment.yaml").write_text("agent: {name: impala}\n")


def cut_settings(path):
    (path / "experiment.yaml").write_text("agent: {name: [")


def damaged_metrics(path):
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join([lines[0], '{"time": \n', *lines[1:]]))


def foreign_metrics(path):
    (path / "metrics.jsonl").write_text("[1]\n")


def no_metrics(path):
    (path / "metrics.jsonl").unlink()


def no_evaluations(path):
    row = {"time": 1.0, "elapsed_seconds": 1.0, "environment_steps": 5}
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize("row", [[1], 3, {"evaluator/return_std": "x"}, {"elapsed_seconds": None}])
def test_a_row_with_a_wrong_value_is_damaged(tmp_path, row):
    write_run(tmp_path, [(1000, 1.0)])
    good = {"elapsed_seconds": 1.0, "environment_steps": 5, "evaluator/return": 1.0}
    rows = [good, {**good, **row} if isinstance(row, dict) else row]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (left_out,) = read_results([str(tmp_path)]).left_out
    assert "line 2 of its metrics.jsonl is damaged" in left_out


def test_a_seed_that_is_no_whole_number_is_damage(tmp_path):
    write_run(tmp_path, [(1000, 1.0)])
    path = tmp_path / "experiment.yaml"
    path.write_text(re.sub("seed: .*", "seed: .inf", path.read_text()))
    (left_out,) = read_results([str(tmp_path)]).left_out
    assert "its experiment.yaml is damaged" in left_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage, reason",
    [
        (damaged_settings, "its experiment.yaml is damaged"),
        (cut_settings, "is not valid YAML"),
        (damaged_metrics, "line 2 of its metrics.jsonl is damaged"),
        (foreign_metrics, "line 1 of its metrics.jsonl is damaged"),
        (no_metrics, "it has no metrics.jsonl"),
        (no_evaluations, "it has no evaluator/return"),
    ],
)
def test_a_run_that_cannot_be_compared_is_named_in_one_line(damage, reason, tmp_path):
    bad, good = write_run(tmp_path / "bad", [(1000, 1.0)]), write_run(tmp_path / "good", [(1000, 1.0)])
    damage(tmp_path / "bad")
    results = read_results([str(tmp_path)])
    assert [run.name for run in results.runs] == [good]
    (line,) = results.left_out
    assert line.startswith(f"{bad} is left out: ") and reason in line and "\n" not in line


def test_a_row_that_is_being_written_is_ignored(tmp_path):
    write_run(tmp_path / "x", [(1000, 1.0)])
    with (tmp_path / "x" / "metrics.jsonl").open("a") as file:
        file.write('{"environment_steps": 20')
    assert only(tmp_path / "x").score == 1.0


def test_a_run_that_is_still_running_is_left_out_unless_it_is_wanted(tmp_path, monkeypatch):
    write_run(tmp_path / "x", [(1000, 1.0)])
    lock = RunDirectory(tmp_path / "x").lock()
    with run_lock(lock, "--launcher inline"):
        monkeypatch.setattr("os.getpid", lambda: 1)  # The lock is that of another process.
        monkeypatch.setattr(Holder, "has_died", lambda self: False)
        results = read_results([str(tmp_path)])
        assert results.runs == [] and results.left_out[0].endswith("x is left out: it is still running")
        assert only(tmp_path / "x", include_running=True).score == 1.0
