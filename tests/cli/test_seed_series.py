"""`callboard train --seeds`: several seeds in directories of their own, and mistakes in one line."""

import json
import re
import shlex

import pytest
from synthetic_runs import write_run

from callboard.cli.command import main
from callboard.cli.seed_series import is_series
from callboard.launch.experiments.settings import read_recipe
from callboard.studies.comparison import run_series

SETTINGS = ["--recipe", "ppo-cartpole", "--launcher", "inline", "--run-dir", "runs/x"]


@pytest.fixture
def started(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    commands = []

    def run(arguments):
        commands.append(arguments)
        run_dir = arguments[arguments.index("--run-dir") + 1]
        write_run(tmp_path / run_dir, [(1000, 490.0)], seed=len(commands), agent="ppo")
        return 0, None

    monkeypatch.setattr(run_series, "_run_process", run)
    return commands


def test_each_seed_is_a_run_and_a_table_follows(started, capsys):
    assert main(["train", *SETTINGS, "--seeds", "1,2", "--actors=1"]) == 0
    assert started == [
        *(
            ["train", "--recipe", "runs/x/settings.yaml", "--seed", seed, "--run-dir", f"runs/x/seed-{seed}"]
            + ["--checkpoint-replay=True", "--replay-checkpoint-every=1800.0", "--of-series", "--launcher", "inline"]
            for seed in ("1", "2")
        )
    ]
    assert read_recipe("runs/x/settings.yaml")["actors"] == 1
    text = capsys.readouterr().out
    assert "ppo on CartPole-v1     2  490.0 ± 0.0" in text and "2 of 2 runs are finished\n" in text


def test_the_folder_s_next_commands_follow_once(started, capsys, tmp_path):
    assert main(["train", *SETTINGS, "--seeds", "1,2"]) == 0
    said = capsys.readouterr().out
    compare, evaluate = re.findall("^  callboard (.*)$", said.partition("\nNext:\n")[2], re.MULTILINE)
    assert said.count("callboard ") == 2
    assert main(shlex.split(compare)) == 0 and (tmp_path / "runs" / "x" / "curves.png").exists()
    assert evaluate == "evaluate runs/x/seed-1 --checkpoint latest"


def test_resume_continues_with_the_missing_seeds_and_with_more(started, capsys):
    assert main(["train", *SETTINGS, "--seeds=1"]) == 0
    assert main(["train", "--resume", "--run-dir", "runs/x", "--launcher", "inline", "--seeds", "1,5"]) == 0
    assert [command[4] for command in started] == ["1", "5"]
    assert main(["train", "--resume", "--run-dir=runs/x", "--launcher", "inline"]) == 0
    assert len(started) == 2 and "run 2 of 2, seed-5, is already finished" in capsys.readouterr().out


def test_runs_that_never_began_are_replaced_by_those_of_the_corrected_command(started, monkeypatch, tmp_path, capsys):
    with monkeypatch.context() as patched:
        patched.setattr(run_series, "_run_process", lambda arguments: (2, None))
        assert main(["train", *SETTINGS, "--seeds", "1,2", "--actors=1"]) == 1
    assert "seed-1 failed with exit code 2\n" in capsys.readouterr().out
    assert main(["train", *SETTINGS, "--seeds", "3", "--actors=2"]) == 0
    assert read_recipe("runs/x/settings.yaml")["actors"] == 2
    assert list(json.loads((tmp_path / "runs" / "x" / "progress.json").read_text())) == ["seed-3"]


def test_options_of_the_command_and_the_launcher_apply_to_each_run(started):
    arguments = [*SETTINGS, "--launcher", "ray", "--ray-wait", "5", "--add-nodes", "mine:nodes", "--seeds", "1"]
    assert main(["train", *arguments]) == 0
    further = started[0][started[0].index("--of-series") + 1 :]
    assert further == ["--launcher", "ray", "--add-nodes", "mine:nodes", "--ray-wait", "5"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([*SETTINGS, "--seeds", "1,x"], "--seeds must be whole numbers, such as 1,2,3, not '1,x'"),
        ([*SETTINGS, "--seeds", "-1"], "--seeds"),
        ([*SETTINGS, "--seeds", ""], "--seeds must name at least one seed"),
        ([*SETTINGS, "--seeds", "2,2"], "each once, not '2,2'"),
        ([*SETTINGS, "--seeds", "1", "--seed", "2"], "give --seed for one run or --seeds for several"),
        ([*SETTINGS, "--seeds", "1", "--actors", "-1"], "actors must be a whole number"),
        ([*SETTINGS, "--seeds", "1", "--env", "CartPol-v1"], "did you mean 'CartPole-v1'?"),
        ([*SETTINGS, "--seeds", "1", "--learners", "2"], "set learners to 1"),
        (["impala", "--seeds", "1"], "name an environment"),
        ([*SETTINGS[:-1], "s3://bucket/x", "--launcher=ray", "--seeds", "1"], "needs a run directory that is a path"),
        ([*SETTINGS[:-1], "old", "--seeds", "1"], "there are already runs of several seeds in old; continue them with"),
        ([*SETTINGS[:-1], "run", "--seeds", "1"], "there is already a run in run"),
        (
            [*SETTINGS[:-1], "foreign", "--seeds", "1"],
            "there is already a run in foreign/seed-2, and no foreign/settings",
        ),
        (["--resume", "--run-dir", "old", "--max-steps", "5"], "leave out --max-steps, or continue one of them"),
        (["--resume", "--run-dir", "nowhere", "--seeds", "1"], "there are no runs of several seeds in nowhere"),
        (["--resume", "--seeds", "1"], "--resume needs the run's directory"),
        ([*SETTINGS, "--seeds", "1,2", "--overwrite"], "--overwrite replaces one run, and --seeds makes several"),
        (["--resume", "--run-dir", "old", "--overwrite"], "--overwrite replaces one run, and --seeds makes several"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(arguments, message, started, tmp_path, capsys):
    for begun in ("old/seed-1", "run", "foreign/seed-2"):
        (tmp_path / begun).mkdir(parents=True)
        (tmp_path / begun / "experiment.yaml").touch()
    (tmp_path / "old" / "progress.json").write_text('{"seed-1": null}')
    (tmp_path / "old" / "settings.yaml").write_text("agent: {name: impala}\nenv: CartPole-v1\n")
    before = sorted(tmp_path.rglob("*"))
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("callboard: ") and error.count("\n") == 1
    assert not started and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "progress",
    [
        "{}",
        "[]",
        "3",
        '{"foo": null}',
        '{"seed-x": null}',
        '{"seed-01": null}',
        '{"seed--1": null}',
        '{"seed-99999999999": null}',
        '{"seed-1": null, "foo": null}',
        '{"seed-1": "12"}',
        '{"seed-1": [0]}',
        '{"seed-1": [0.5, 1.0]}',
        '{"seed-1": [[0], 1.0]}',
    ],
)
def test_damaged_progress_is_refused_and_starts_nothing(progress, started, tmp_path, capsys):
    (tmp_path / "progress.json").write_text(progress)
    (tmp_path / "settings.yaml").write_text("agent: {name: impala}\nenv: CartPole-v1\n")
    assert main(["train", "--resume", "--run-dir", str(tmp_path), "--launcher", "inline"]) == 2
    damaged = f"callboard: {tmp_path}/progress.json is damaged; replace it by a copy, or name another directory\n"
    assert capsys.readouterr().err == damaged and not started


@pytest.mark.parametrize(
    "name, message",
    [
        ("seed-1", "x/settings.yaml, are missing; replace them by a copy"),
        ("ppo/seed-1", "the runs in x are those of a study; continue it with callboard study"),
    ],
)
def test_a_series_without_settings_is_refused(name, message, started, tmp_path, capsys):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "progress.json").write_text(json.dumps({name: None}))
    assert main(["train", "--resume", "--run-dir", "x", "--launcher", "inline"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not started


@pytest.mark.parametrize("run_dir", ["n" * 300, "s3://bucket/run"])
def test_what_cannot_be_a_directory_is_no_series(run_dir):
    assert not is_series(["--run-dir", run_dir])
