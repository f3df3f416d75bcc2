"""`callboard tune`: mistakes are one line and start nothing, and what the help lists."""

import pathlib
import sys

import pytest

from callboard.cli.command import main
from callboard.studies.tuning.records import Trial, TuneDirectory
from callboard.studies.tuning.search_definition import Tuning

RATE = "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"


@pytest.fixture(autouse=True)
def functions(monkeypatch):
    """Makes the functions importable that searches name."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[1] / "launch" / "environments")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name an agent"),
        (["impala", "--search", RATE], "name an environment"),
        (["impala", "--env", "CartPole-v1"], "name what to vary: --search"),
        (["impal", "--env", "CartPole-v1", "--search", RATE], "unknown agent 'impal'; did you mean 'impala'?"),
        (["CARTPOLE", "--search", "agent.learnin_rate=uniform(0,1)"], "did you mean 'agent.optimizer.learning_rate'?"),
        (["CARTPOLE", "--search", "actor=randint(1,3)"], "unknown key 'actor'; did you mean 'actors'?"),
        (
            ["CARTPOLE", "--search", "agent.optimizer.learning_rate=choice(fast)"],
            "agent.optimizer.learning_rate must be a number",
        ),
        (["CARTPOLE", "--search", "agent.unroll_length=uniform(5,9)"], "agent.unroll_length must be a whole number"),
        (["CARTPOLE", "--search", "agent.batch_size=choice(16,24)"], "set agent.batch_size to 16 or 32"),
        (
            ["CARTPOLE", "--search", "agent.unroll_length=randint(0,9)"],
            "agent.unroll_length must be a whole number of at least 1, not 0",
        ),
        (["CARTPOLE", "--search", "run_dir=choice(a,b)"], "every trial has a directory of its own"),
        (["CARTPOLE", "--search", "max-steps=choice(5,6)"], "trials are compared by their environment steps"),
        (["CARTPOLE", "--search", "learners=choice(1,2)"], "needs its own; set learners to 1"),
        (
            ["CARTPOLE", "--search", "agent=choice(impala,ppo)"],
            "name a field of it, such as agent.optimizer.learning_rate",
        ),
        (["CARTPOLE", "--search", "agent.name=choice(impala,ppo)"], "trials of different agents cannot be compared"),
        (["CARTPOLE", "--search", "actors.x=randint(1,3)"], "actors is one value and has no fields"),
        (["CARTPOLE", "--search", "agent.=choice(1,2)"], "names no setting"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "s3://bucket/x"], "must be a path, not s3://bucket/x"),
        (["CARTPOLE", "--search", RATE, "--ray-address", "ray://head:10001"], "must run on a machine of the cluster"),
        (["CARTPOLE", "--search", RATE, "--ray-address", "nonsense"], "'nonsense' is not the address of a Ray cluster"),
        (["CARTPOLE", "--search", "actors"], "write KEY=DISTRIBUTION"),
        (["CARTPOLE", "--search"], "--search needs a value"),
        (["CARTPOLE", "--search", RATE, "--sampels", "3"], "unknown option '--sampels'; did you mean '--samples'?"),
        (["CARTPOLE", "--search", RATE, "--max-stps", "3"], "did you mean '--max-steps'?"),
        (
            ["CARTPOLE", "--search", RATE, "--samples", "few"],
            "at least 1 or null, not 'few'",
        ),
        (
            ["CARTPOLE", "--search", RATE, "--samples", "0"],
            "at least 1 or null, not 0",
        ),
        (["CARTPOLE", "--search", RATE, "--scheduler", "hyper"], "--scheduler must be asha, pbt or none, not 'hyper'"),
        (["CARTPOLE", "--search", RATE, "--mode", "most"], "--mode must be max or min"),
        (["CARTPOLE", "--search", RATE, "--launcher", "processes"], "--launcher must be one of inline, threads"),
        (["CARTPOLE", "--search", RATE, "--metric", "evaluator/retrun"], "did you mean 'evaluator/return'?"),
        (["CARTPOLE", "--search", RATE, "--metric", "score"], "name one of those in metrics.jsonl"),
        (["CARTPOLE", "--search", RATE, "--evaluator", "false", "--stop-return", "null"], "needs the evaluator"),
        (["CARTPOLE", "--search", RATE, "--max-steps", "9000"], "lower --evaluate-every or raise --max-steps"),
        (["CARTPOLE", "--search", RATE, "--grace-steps", "500000"], "--grace-steps must be at most max_steps"),
        (
            ["CARTPOLE", "--search", RATE, "--reduction-factor", "1"],
            "must be a whole number of at least 2, not 1",
        ),
        (
            ["CARTPOLE", "--search", RATE, "--cpus-per-trial", "0"],
            "must be a number above 0, nodes, or package.",
        ),
        (["CARTPOLE", "--search", RATE, "--scheduler", "pbt", "--samples", "1"], "needs a population"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "pbt", "--perturb-every", "9"], "at least evaluate_every"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "old"], "there is already a search in old"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "trained"], "there is already a run in trained"),
        (["CARTPOLE", "--search", RATE, "--trial", "nowhere:f"], "'nowhere:f' cannot be imported"),
        (["--trial", "search_functions:trial", "--search", "x=grid(1,2)", "--envs", "3"], "unknown option '--envs'"),
        (["--trial", "search_functions:trial", "--max-steps", "9"], "name what to vary: --search"),
        (["--plot"], "--plot needs the directory of a search: --run-dir runs/..., or a search to start"),
        (["--plot", "--run-dir", "trained"], "there is no search to plot in trained: it has no tune.yaml"),
        (["--resume"], "--resume needs the directory of the search"),
        (["--resume", "--run-dir", "nowhere"], "there is no search to resume in nowhere"),
        (["--resume", "--run-dir", "old", "--samples", "3"], "resumed with the settings that it was started with"),
        (["--resume", "--run-dir", "old", "--max-steps", "3"], "resumed with the settings that it was started with"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("old/tune.yaml", "trained/experiment.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    before = sorted(tmp_path.rglob("*"))
    if arguments[:1] == ["CARTPOLE"]:
        arguments = ["--recipe", "impala-cartpole", *arguments[1:]]
    assert main(["tune", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("callboard: ") and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_without_ray_one_line_says_how_to_get_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ray", "ray.tune"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["tune", "--recipe", "impala-cartpole", "--search", RATE]) == 2
    error = capsys.readouterr().err
    assert "callboard tune needs Ray" in error and "pip install 'callboard[ray]'" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_names_what_can_be_searched_and_how(capsys):
    assert main(["tune", "--help"]) == 0
    text = capsys.readouterr().out
    assert "loguniform(a,b)" in " ".join(text.split()) and "--scheduler" in text and "--resume" in text


@pytest.mark.slow("daily")
def test_a_search_that_has_ended_is_plotted(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    directory = TuneDirectory(tmp_path / "search")
    tuning = Tuning(
        {"seed": 1, "max_steps": 9, "evaluate_every": 1}, ["x=uniform(0,1)"], trial="search_functions:trial"
    )
    directory.create(tuning.to_file())
    assert main(["tune", "--plot", "--run-dir", "search"]) == 2
    assert "there is nothing to plot" in capsys.readouterr().err
    trial = Trial(0, {"x": 0.5})
    trial.report(5, 3.0, "max")
    directory.write_trials([trial])
    assert main(["tune", "--plot", "--run-dir", "search"]) == 0
    assert capsys.readouterr().out == "plot: search/search.png\n"
    assert (tmp_path / "search" / "search.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow("daily")
def test_a_function_of_ones_own_needs_neither_agent_nor_environment(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    begun = []
    monkeypatch.setattr("callboard.cli.tune._tune", lambda *arguments: begun.append(arguments) or 0)
    arguments = ["--trial", "search_functions:trial", "--search", "x=grid(1,2)", "--max-steps", "8", "--seed", "5"]
    assert main(["tune", *arguments]) == 0
    tuning, directory, *_ = begun[0]
    assert tuning.settings == {"seed": 5, "max_steps": 8, "evaluate_every": 1} and tuning.trials == 2
    assert directory.path.name.startswith("tune-trial-")
    assert main(["tune", "--recipe", "ppo-cartpole", *arguments[:2], "--search", RATE]) == 0
    assert begun[1][0].settings["agent"]["name"] == "ppo"
