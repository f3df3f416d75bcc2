"""A series of runs: what is run, skipped and resumed, what fails, and how it is stopped."""

import json
import re
import shutil
import signal

import pytest
from synthetic_runs import write_run

from callboard.errors import CallboardError
from callboard.launch.experiments.settings import parse_settings, read_recipe
from callboard.launch.experiments.yaml_files import format_yaml
from callboard.studies.comparison import run_series as module
from callboard.studies.comparison.run_series import Cell, RunEnd, SeriesDirectory, recipe_of, run_series

RECIPE = recipe_of(
    parse_settings("impala", {"env": "CartPole-v1"}, ["--agent.optimizer.learning-rate=0.5", "--seed=3"])
)
CELLS = [Cell("a", RECIPE, [1, 2], ("--launcher", "inline")), Cell("b", RECIPE, [1])]


@pytest.fixture
def directory(tmp_path):
    return SeriesDirectory(tmp_path / "series")


@pytest.fixture
def processes(monkeypatch, directory):
    """The processes of runs: their arguments, and their exit codes and signals in turn."""

    class Processes:
        started: list = []
        ends: list = []

        def run(self, arguments):
            self.started.append(arguments)
            run_dir = directory.path / arguments[arguments.index("--run-dir") + 1]
            if not run_dir.exists():
                write_run(run_dir, [(1000, 5.0)])
            return self.ends.pop(0) if self.ends else (0, None)

        def names(self):
            runs = [arguments[arguments.index("--run-dir") + 1] for arguments in self.started]
            self.started.clear()
            return [run.removeprefix(f"{directory.path}/") for run in runs]

    processes = Processes()
    processes.started, processes.ends = [], []
    monkeypatch.setattr(module, "_run_process", processes.run)
    return processes


def run(directory, cells=CELLS):
    said = []
    directory.check(cells)
    return run_series(directory, cells, said.append), said


def test_a_recipe_has_the_settings_of_all_policies(tmp_path):
    policies = {
        "a": {"network": {"hidden_sizes": [4]}},
        "b": "apex",
        "c": {"name": "random"},
        "d": {"snapshots_of": "a"},
    }
    given = {"env": "pettingzoo:mpe.simple_spread_v3", "policies": policies, "mapping": {"*": "a"}}
    settings = parse_settings("impala", given, ["--agent.entropy-cost=0.5"])
    recipe = recipe_of(settings)
    assert recipe["policies"]["a"] == {"name": "impala", "entropy_cost": 0.5, "network": {"hidden_sizes": [4]}}
    path = tmp_path / "recipe.yaml"
    path.write_text(format_yaml(recipe))
    assert parse_settings(None, read_recipe(str(path)), []) == settings


def test_a_recipe_has_all_settings_that_were_given_except_the_seed(tmp_path):
    assert RECIPE == {
        "agent": {"name": "impala", "optimizer": {"learning_rate": 0.5}},
        "env": "CartPole-v1",
    }


def test_runs_follow_each_other_in_directories_of_their_own(directory, processes):
    outcome, said = run(directory)
    assert (outcome.exit_code, outcome.summary()) == (0, "3 of 3 runs are finished")
    settings = str(directory.settings("a"))
    assert processes.started[0] == [
        *("train", "--recipe", settings, "--seed", "1", "--run-dir", str(directory.path / "a" / "seed-1")),
        *("--checkpoint-replay=True", "--replay-checkpoint-every=1800.0", "--of-series", "--launcher", "inline"),
    ]
    assert processes.names() == ["a/seed-1", "a/seed-2", "b/seed-1"]
    assert read_recipe(settings) == RECIPE
    assert said == ["run 1 of 3: a/seed-1", "run 2 of 3: a/seed-2", "run 3 of 3: b/seed-1"]
    assert not (directory.path / "lock").exists()


def test_a_run_that_fails_does_not_stop_the_others_and_is_tried_again(directory, processes):
    processes.ends = [(0, None), (1, None), (0, None)]
    outcome, said = run(directory)
    assert (outcome.exit_code, outcome.failed) == (1, ["a/seed-2"])
    assert outcome.summary() == "2 of 3 runs are finished; failed: a/seed-2"
    assert said[2] == f"a/seed-2 failed with exit code 1; see {directory.path}/a/seed-2/logs"
    processes.names()
    outcome, said = run(directory)
    assert outcome.exit_code == 0 and said[0] == "run 1 of 3, a/seed-1, is already finished"
    assert processes.started[0][:2] == ["train", "--resume"] and "--recipe" not in processes.started[0]
    assert processes.names() == ["a/seed-2"]


def test_replay_is_saved_until_the_run_is_finished(directory, processes):
    processes.ends = [(0, None), (1, None)]
    saved = [
        directory.path / "a" / f"seed-{seed}" / below / "0" / "000000000001"
        for seed in CELLS[0].seeds
        for below in ("replay", "policies/left/replay")
    ]
    for checkpoint in saved:
        checkpoint.mkdir(parents=True)
    run(directory, CELLS[:1])
    assert [checkpoint.exists() for checkpoint in saved] == [False, False, True, True]
    processes.ends = [(130, signal.SIGINT)]
    run(directory, CELLS[:1])
    assert saved[2].exists()
    run(directory, CELLS[:1])
    assert not saved[2].exists()


def test_a_series_whose_settings_say_what_is_saved_saves_that(directory, processes):
    saved = directory.path / "seed-1" / "replay" / "0"
    saved.mkdir(parents=True)
    run(directory, [Cell("", {**RECIPE, "checkpoint_replay": True, "replay_checkpoint_every": 5}, [1])])
    assert not any("replay" in argument for argument in processes.started[0]) and saved.exists()


def test_a_finished_run_whose_directory_was_deleted_is_made_again(directory, processes):
    run(directory)
    processes.names()
    shutil.rmtree(directory.run("a/seed-2"))
    outcome, said = run(directory)
    assert processes.names() == ["a/seed-2"] and outcome.exit_code == 0
    assert said[1] == "run 2 of 3: a/seed-2"


def test_a_signal_stops_the_series_and_the_run_is_resumed_later(directory, processes):
    processes.ends = [(0, None), (130, signal.SIGINT)]
    outcome, _ = run(directory)
    assert (outcome.exit_code, outcome.failed) == (130, [])
    assert processes.names() == ["a/seed-1", "a/seed-2"]
    assert directory.read_progress()["a/seed-2"] is None
    outcome, _ = run(directory)
    assert outcome.exit_code == 0 and processes.names() == ["a/seed-2", "b/seed-1"]


def test_seeds_can_be_added(directory, processes):
    run(directory, [Cell("", RECIPE, [1])])
    run(directory, [Cell("", RECIPE, [1, 7])])
    assert processes.names() == ["seed-1", "seed-7"]
    assert list(directory.read_progress()) == ["seed-1", "seed-7"]


def test_a_second_series_in_the_directory_is_refused_by_what_runs_there(directory, monkeypatch):
    def start_another(arguments):
        with pytest.raises(CallboardError, match=r"a run is active in .*/series, by .* \(a series of runs\); end it"):
            run_series(directory, CELLS, print)
        return 130, signal.SIGINT

    monkeypatch.setattr(module, "_run_process", start_another)
    assert run(directory)[0].exit_code == 130


def test_other_settings_are_refused(directory, processes):
    run(directory)
    with pytest.raises(CallboardError, match="the settings have changed since .*/a/settings.yaml was written"):
        directory.check([Cell("a", {**RECIPE, "actors": 7}, [1])])


def test_runs_without_the_settings_of_their_series_are_refused(directory, processes):
    run(directory)
    directory.settings("a").unlink()
    with pytest.raises(CallboardError, match=r"already a run in .*/a/seed-1, and no .*/a/settings.yaml"):
        directory.check([Cell("a", RECIPE, [3])])


def test_the_directory_of_a_run_is_refused(tmp_path):
    write_run(tmp_path / "run", [(1000, 5.0)])
    with pytest.raises(CallboardError, match="there is already a run in"):
        SeriesDirectory(tmp_path / "run").check([])


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": ["x", 2]}', '{"a": [0]}'])
def test_damaged_progress_is_refused_in_one_line(directory, content):
    directory.path.mkdir()
    (directory.path / "progress.json").write_text(content)
    with pytest.raises(CallboardError, match="progress.json is damaged; replace it by a copy"):
        directory.check([])


def test_progress_is_read_as_it_was_written(directory):
    directory.path.mkdir()
    ends = {"a/seed-1": RunEnd(0, 2.5), "a/seed-2": None}
    directory.write_progress(ends)
    assert directory.read_progress() == ends
    assert json.loads((directory.path / "progress.json").read_text())["a/seed-2"] is None


@pytest.mark.slow("daily")
def test_a_run_is_a_process_of_the_command(capfd):
    assert module._run_process(["list", "agents"]) == (0, None)
    assert "impala" in capfd.readouterr().out.splitlines()
    assert module._run_process(["trian"]) == (2, None)
    assert "did you mean 'train'?" in capfd.readouterr().err


@pytest.mark.slow
def test_ctrl_c_stops_the_run_with_a_checkpoint_and_resume_continues(start, tmp_path):
    settings = ["--launcher", "inline", "--max-steps", 40_000, "--stop-return", "null", "--evaluate-every", 5000]
    series = tmp_path / "run"
    command = start("train", "--recipe", "ppo-cartpole", "--seeds", "1,2", *settings, "--run-dir", series)
    command.wait_until(lambda: "run 2 of 2" in command.text() and (series / "seed-2" / "metrics.jsonl").exists())
    command.wait_until(lambda: len((series / "seed-2" / "metrics.jsonl").read_text().splitlines()) > 2)
    command.interrupt()
    assert command.wait(60) == 130, command.text()
    assert "stopped; continue: callboard train --resume --run-dir" in command.text()
    assert list((series / "seed-2" / "checkpoints").glob("0*")) and command.leftovers() == []
    again = start("train", "--resume", "--run-dir", series, "--launcher", "inline")
    assert again.wait(300) == 0, again.text()
    assert "run 1 of 2, seed-1, is already finished" in again.text() and "2 of 2 runs are finished" in again.text()


@pytest.mark.slow
def test_a_run_that_is_resumed_has_its_replay(start, tmp_path):
    run = tmp_path / "run" / "seed-1"
    settings = ["--launcher", "inline", "--max-steps", 8000, "--stop-return", "null", "--evaluate-every", 2000]
    command = start("train", "--recipe", "apex-cartpole", "--seeds", "1", *settings, "--run-dir", run.parent)
    command.wait_until((run / "metrics.jsonl").exists)
    command.wait_until(lambda: "learner/loss" in (run / "metrics.jsonl").read_text())
    command.interrupt()
    assert command.wait(60) == 130, command.text()
    again = start("train", "--resume", "--run-dir", run.parent, "--launcher", "inline")
    assert again.wait(300) == 0, again.text()
    items = re.search("replay/0: continues with ([0-9,]+) items", again.text())
    assert items and int(items[1].replace(",", "")) > 50, again.text()  # Of 16 environments each.
    assert not (run / "replay").exists()


@pytest.mark.slow
def test_a_run_ends_with_the_command_that_was_killed(start, tmp_path):
    command = start("train", "--recipe", "ppo-cartpole", "--seeds", "1", "--stop-return=null", "--launcher", "inline")
    run = tmp_path / "runs"
    command.wait_until(lambda: any(run.glob("*/seed-1/metrics.jsonl")))
    command.look()
    command.process.kill()
    command.wait_until(lambda: command.leftovers() == [], 60)
