"""`callboard study`: runs, reports, and mistakes in one line."""

import sys

import pytest
from synthetic_runs import write_run

from callboard.cli.command import main
from callboard.studies.comparison import run_series

STUDY = """
agents: [impala, ppo]
environments: [CartPole-v1]
seeds: [1, 2]
launcher: inline
settings: {max_steps: 400, evaluate_every: 200, evaluation_episodes: 2, evaluation_envs: 2, actors: 1}
"""


@pytest.fixture
def study(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)


@pytest.fixture
def started(monkeypatch, tmp_path, study):
    commands = []

    def run(arguments):
        commands.append(arguments)
        run_dir = arguments[arguments.index("--run-dir") + 1]
        write_run(tmp_path / run_dir, [(1000, 490.0)], seed=len(commands))
        return 0 if "ppo" not in run_dir else 1, None

    monkeypatch.setattr(run_series, "_run_process", run)
    return commands


@pytest.fixture
def without_minigrid(monkeypatch, study, tmp_path):
    for loaded in [loaded for loaded in sys.modules if loaded.startswith("minigrid")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "minigrid", None)
    there = "[MiniGrid-Empty-8x8-v0, MiniGrid-DoorKey-5x5-v0, CartPole-v1]"
    (tmp_path / "mine.yaml").write_text(STUDY.replace("[CartPole-v1]", there))


@pytest.mark.slow("daily")
def test_only_what_is_run_needs_its_package(without_minigrid, started, capsys):
    pytest.importorskip("matplotlib")
    left_out = "missing packages leave out MiniGrid-Empty-8x8-v0 (minigrid), MiniGrid-DoorKey-5x5-v0 (minigrid): "
    assert main(["study", "mine.yaml", "--list", "--only", "impala"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7 and lines[-1].startswith(left_out) and lines[-1].count("callboard[minigrid]") == 1
    assert main(["study", "mine.yaml", "--list", "--only", "CartPole"]) == 0
    assert "missing" not in capsys.readouterr().out
    assert main(["study", "mine.yaml", "--only", "impala"]) == 0
    text = capsys.readouterr().out
    assert len(started) == 2 and "2 of 2 runs are finished" in text and text.count(left_out) == 1
    assert main(["study", "mine.yaml", "--only", "MiniGrid"]) != 0
    assert len(started) == 2 and left_out in capsys.readouterr().err


@pytest.mark.slow("daily")
def test_a_failed_run_is_named_at_the_end_and_the_others_are_reported(started, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["study", "mine.yaml"]) == 1
    text = capsys.readouterr().out
    failed = "2 of 4 runs are finished; failed: ppo-CartPole-v1/seed-1, ppo-CartPole-v1/seed-2"
    assert "report: runs/study-mine/report.md" in text and text.splitlines()[-1] == failed
    assert (tmp_path / "runs" / "study-mine" / "curves.png").exists()
    assert main(["study", "mine.yaml"]) == 1
    assert len(started) == 6  # The two that failed were tried again.
    capsys.readouterr()
    assert main(["study", "mine.yaml", "--report"]) == 1
    assert len(started) == 6 and "report.md" in capsys.readouterr().out


@pytest.mark.slow("daily")
def test_runs_are_listed_and_options_and_seeds_apply_to_all(started, capsys):
    assert main(["study", "mine.yaml", "--list", "--seeds", "7"]) == 0
    assert capsys.readouterr().out.splitlines() == ["impala-CartPole-v1/seed-7", "ppo-CartPole-v1/seed-7"]
    assert main(["study", "mine.yaml", "--list", "--only", "ppo"]) == 0
    assert capsys.readouterr().out.splitlines() == ["ppo-CartPole-v1/seed-1", "ppo-CartPole-v1/seed-2"]
    assert not started
    main(["study", "mine.yaml", "--seeds=7", "--run-dir", "there", "--max-steps", "300"])
    assert "max_steps: 300" in open("there/ppo-CartPole-v1/settings.yaml").read()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "callboard study needs a YAML file, or a name in `callboard list studies`"),
        (["mine"], "unknown study 'mine'; `callboard list studies` lists all"),
        ([""], "unknown study ''; `callboard list studies` lists all"),
        (["mine.yaml", "--run-dir", "s3://bucket/x"], "--run-dir of a study must be a path, not s3://bucket/x"),
        (["mine.yaml", "--seeds", "x"], "--seeds must be whole numbers, such as 1,2,3, not 'x'"),
        (["mine.yaml", "--max-stps", "3"], "unknown option '--max-stps'; did you mean '--max-steps'?"),
        (["mine.yaml", "--lst"], "unknown option '--lst'; did you mean '--list'?"),
        (["mine.yaml", "--report"], "there are no runs of a study in runs/study-mine; start them without --report"),
        (["mine.yaml", "--run-dir", "run"], "there is already a run in run"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(arguments, message, started, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.yaml").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(["study", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("callboard: ") and error.count("\n") == 1
    assert not started and sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_study_trains_and_reports(study, tmp_path, capfd):
    pytest.importorskip("matplotlib")
    arguments = ["mine.yaml", "--run-dir", "s", "--seeds", "1", "--agent.network.hidden-sizes=[4]"]
    text = STUDY.replace("[impala, ppo]", "[impala]")
    (tmp_path / "mine.yaml").write_text(text)
    assert main(["study", *arguments]) == 0, capfd.readouterr()
    assert "1 of 1 runs are finished" in capfd.readouterr().out
    assert "| impala on CartPole-v1 | 1 |" in (tmp_path / "s" / "report.md").read_text()
