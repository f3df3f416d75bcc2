"""`callboard evaluate`: scores, videos, and the options that change what is played."""

import json
import pathlib
import subprocess
import sys

import imageio.v3 as imageio
import pytest
from untrained_runs import DEFAULTS, SMALL, write_run

from callboard.cli.command import main


@pytest.mark.slow
def test_evaluate_prints_scores_and_records_a_video_that_plays(tmp_path, capsys):
    path = str(tmp_path / "run")
    settings = ["--launcher", "inline", "--max-steps", "1000", "--evaluator", "false", "--stop-return", "null"]
    assert main(["train", "--recipe", "impala-cartpole", "--run-dir", path, *settings]) == 0
    capsys.readouterr()
    video = ["--video", "--video-episodes", "3"]
    assert main(["evaluate", path, "--episodes", "7", "--checkpoint", "latest", "--json", *video]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["returns"]) == result["episodes"] == 7
    assert result["min"] <= result["mean"] <= result["max"]
    frames = imageio.imread(result["video"], plugin="pyav")
    assert frames.shape[1:] == (400, 600, 3)
    # CartPole's return is its number of steps; the video shows the first observations too.
    assert len(result["video_returns"]) == 3
    assert len(frames) == sum(result["video_returns"]) + 3
    assert imageio.immeta(result["video"], plugin="pyav")["fps"] == 50.0
    assert frames.std() > 1.0
    assert list(pathlib.Path(path, "videos").iterdir()) == [pathlib.Path(result["video"])]

    def returns(*options):
        assert main(["evaluate", path, "--episodes", "7", "--checkpoint", "latest", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["returns"]

    assert returns() == result["returns"]
    assert returns("--seed", "5") != result["returns"]
    assert returns("--mode", "sampled") != result["returns"]
    (step,) = {int(file.name.partition(".")[0]) for file in pathlib.Path(path, "checkpoints").glob("0*")}
    assert returns("--checkpoint", str(step)) == result["returns"]
    assert set(returns("--env-options.max_episode_steps", "5")) == {5.0}
    assert main(["evaluate", path, "--checkpoint", str(step), "--steps", "100", "--json"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert 100 <= played["steps"] < 120 and played["mean_reward"] == 1.0
    assert main(["evaluate", path, "--checkpoint", str(step), "--steps", "3"]) == 0
    assert capsys.readouterr().out == "3 steps, in which no episode ended; mean reward of a step 1\n"
    assert main(["evaluate", path, "--checkpoint", str(step + 1)]) == 2
    assert f"has no checkpoint {step + 1}; choose from latest, {step}" in capsys.readouterr().err
    assert main(["evaluate", path, "--epsilon", "0.1"]) == 2
    assert "Impala takes no epsilon" in capsys.readouterr().err
    assert main(["evaluate", f"{path}@best"]) == 2
    assert "has no checkpoint best, since it was never evaluated; choose from latest, " in capsys.readouterr().err


@pytest.mark.slow("daily")
def test_the_task_of_an_evaluation_is_an_option(tmp_path, capsys):
    path = str(tmp_path / "run")
    write_run(tmp_path / "run", options=["--env=own_callbacks:Walk", *SMALL])

    def steps(task):
        assert main(["evaluate", path, "--episodes", "2", "--evaluation-task", task, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["mean_length"]

    assert steps("{length: -30}") == 1 and steps("{length: 30}") == 20
    assert main(["evaluate", path, "--evaluation-task", "30"]) == 2
    error = capsys.readouterr().err
    assert "a task is a mapping of options for its 'reset', not 30" in error and error.count("\n") == 1


@pytest.mark.slow("daily")
@pytest.mark.parametrize("command", ["evaluate", pytest.param("check", marks=pytest.mark.slow)])
def test_stdout_has_nothing_but_the_results_of_an_environment_that_prints(tmp_path, command):
    write_run(tmp_path / "run", options=["--env=printing_environment:PrintingWalk", *SMALL])
    options = {"evaluate": [str(tmp_path / "run"), "--episodes", "2"], "check": ["printing_environment:PrintingWalk"]}
    ended = subprocess.run(
        [sys.executable, "-m", "callboard", command, *options[command], "--json"],
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)
    if command == "evaluate":
        for language in ("Python", "Python past sys.stdout", "C", "a system call"):
            assert f"printed by {language}\n" in ended.stderr


@pytest.mark.slow("daily")
def test_evaluated_episodes_are_recorded_with_infos(tmp_path, capsys):
    minari = pytest.importorskip("minari")
    path, data = str(tmp_path / "run"), tmp_path / "walk-v0"
    write_run(tmp_path / "run", options=["--env=own_callbacks:Walk", *SMALL])
    options = ["--record", str(data), "--record-infos", "place,lenght"]
    assert main(["evaluate", path, "--episodes", "2", *options]) == 0
    assert "no info so far has the recorded info 'lenght'" in capsys.readouterr().err
    (episode, _) = minari.MinariDataset(str(data / "data"))
    assert len(episode.infos["place"]) == len(episode) + 1


def test_a_window_is_refused_without_a_display(monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["evaluate", "nowhere", "--render", "human"]) == 2
    assert "--render human needs a display" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--episodes", "0"], "--episodes must be at least 1, not 0"),
        (["--steps", "0"], "--steps must be at least 1, not 0"),
        (["--steps", "5", "--episodes", "5"], "--episodes and --steps are two measures of how much to play"),
        (["--render", "humn"], "--render must be human, not 'humn'; did you mean 'human'?"),
        (["--video-episodes", "-1"], "--video-episodes must be at least 1, not -1"),
        (
            ["--record-infos", "time"],
            "--record-infos names infos of recorded episodes: name their data set",
        ),
        (["--mode", "best"], "--mode must be one of greedy, sampled, not 'best'"),
        (["--checkpoint", "newest"], "--checkpoint must be best, latest or a learner step, not 'newest'"),
        (["--sed", "1"], "did you mean '--seed'?"),
    ],
)
def test_wrong_options_are_refused_before_the_run_is_read(options, message, capsys):
    assert main(["evaluate", "nowhere", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.slow("daily")
def test_every_run_in_a_folder_is_evaluated(tmp_path, capsys):
    for seed in (1, 2):
        write_run(tmp_path / f"seed-{seed}", options=(*DEFAULTS, f"--seed={seed}"), best=seed == 1)
    write_run(tmp_path / "seed-3", options=(*DEFAULTS, "--seed=3"))
    assert main(["evaluate", str(tmp_path), "--episodes", "2"]) == 1
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[0] == f"{tmp_path}/seed-1:" and lines[3] == f"{tmp_path}/seed-3:"
    assert lines[-1] == "mean of 2 runs 7.0 ± 0.0"
    assert output.err.startswith(f"callboard: {tmp_path}/seed-2 is left out: ")
    assert main(["evaluate", str(tmp_path), "--episodes", "2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [one["mean"] for one in found.values()] == [7.0, 7.0]
    assert main(["export", str(tmp_path), str(tmp_path / "policy")]) == 2
    assert f"no experiment.yaml; name a run in it, such as {tmp_path}/seed-1" in capsys.readouterr().err


@pytest.mark.slow("daily")
def test_the_latest_weights_of_a_run_without_evaluations_are_taken_and_one_line_says_so(tmp_path, capsys):
    path = str(tmp_path / "run")
    write_run(tmp_path / "run", steps=(5, 12), best=False)
    expected = f"{path} was never evaluated, so it has no best weights: takes the latest\n"
    for command, end in (("evaluate", ["--episodes", "2", "--json"]), ("export", [str(tmp_path / "model")])):
        assert main([command, path, *end]) == 0
        output = capsys.readouterr()
        assert "000000000012" in output.out and output.err == expected
    for name, step in (("@latest", 12), ("@5", 5), ("/checkpoints/000000000005", 5)):
        assert main(["evaluate", f"{path}{name}", "--episodes", "2", "--json"]) == 0
        output = capsys.readouterr()
        assert json.loads(output.out)["policy"] == f"{path}/checkpoints/{step:012d}/policy.npz" and not output.err


@pytest.mark.slow("daily")
def test_weights_that_a_run_does_not_have_are_refused_before_tensorflow_is_imported(tmp_path):
    write_run(tmp_path / "run", steps=(5,), best=False)
    commands = [
        [command, f"{tmp_path}/run@{weights}", *end]
        for command, end in (("evaluate", []), ("export", ["model"]), ("serve", []))
        for weights in ("best", "7")
    ]
    # In one process, since to start it takes longer than all of them.
    code = f"""
import sys
from callboard.cli.command import main
for arguments in {commands!r}:
    assert main(arguments) == 2, arguments
    assert "tensorflow" not in sys.modules, arguments
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == len(commands), ended.stderr
    for line, (_, source, *_) in zip(lines, commands, strict=True):
        assert f"has no checkpoint {source.partition('@')[2]}" in line and line.endswith("choose from latest, 5")


def test_a_run_is_played_where_its_callbacks_and_loggers_cannot_be_imported(tmp_path, capsys):
    write_run(tmp_path / "run")
    settings = tmp_path / "run" / "experiment.yaml"
    text = settings.read_text()
    for name, value in (("callbacks", "[elsewhere:Mine]"), ("loggers", "[elsewhere:Mine]")):
        assert f"{name}: []" in text
        text = text.replace(f"{name}: []", f"{name}: {value}")
    settings.write_text(text)
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert capsys.readouterr().out.startswith("7 7\n")


@pytest.mark.slow("daily")
def test_the_line_about_a_video_says_how_many_episodes_it_shows(tmp_path, capsys):
    write_run(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2", "--video"]) == 0
    output = capsys.readouterr().out
    assert output.endswith("(1 further episode with a return of 7; --video-episodes sets how many)\n")
