"""`callboard dataset`: numbers, plots and videos of recorded episodes."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import imageio.v3 as imageio
import numpy as np
import pytest
from dm_env import specs as dm_specs
from recorded_sets import CARTPOLE, cartpole_episode, write

from callboard import dataset_info, dataset_video
from callboard.cli.command import main
from callboard.specs import EnvironmentSpec
from callboard.studies.datasets import dataset_plots

pytest.importorskip("minari")

METADATA = {"algorithm_name": "ppo", "callboard": {"environment": "CartPole-v1", "environment_options": {}, "seed": 5}}


def named(environment, **options):
    """Metadata of an environment of somebody else."""
    return {"callboard": {"environment": environment, "environment_options": options}}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A data set of two episodes that can be played again, one without a seed and one that did not happen so."""
    episodes = [cartpole_episode(7, 6), cartpole_episode(8, 9), cartpole_episode(9, 3), cartpole_episode(10, 4)]
    episodes[2]["seed"] = None
    episodes[3]["observation"][2] += 0.1
    return write(tmp_path_factory.mktemp("sets") / "cartpole-v0", CARTPOLE, episodes, METADATA)


@pytest.mark.slow("daily")
def test_info_prints_the_numbers_and_plots_them(cartpole, capsys, tmp_path):
    plot = tmp_path / "plot.png"
    assert main(["dataset", "info", cartpole, "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    for line in (
        "environment  CartPole-v1",
        "recorded by  ppo, seed 5",
        "episodes     4: 0 terminated, 4 cut off",
        "steps        22",
        "returns      5.5 ± 2.291, from 3 to 9; quartiles 3.75, 5, 6.75",
        "action       0: 54.5%, 1: 45.5%",
    ):
        assert line in printed
    assert imageio.imread(plot).std() > 1
    assert main(["dataset", "info", cartpole, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lengths"]["max"] == 9


def test_a_video_shows_every_observation_of_the_episode_as_its_environment_plays_it_again(cartpole, tmp_path, capsys):
    video = tmp_path / "one.mp4"
    assert main(["dataset", "video", cartpole, "--episode", "1", "--output", str(video)]) == 0
    assert str(video) in capsys.readouterr().out
    assert imageio.imread(video, plugin="pyav").shape[0] == 10


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--episode", "4"], "there is no episode 4 in the data set .*which has 4; they are numbered from 0"),
        (["--episode", "3", "--env", "CartPole-v1"], "cannot be shown: played again, it differs from step 2 on"),
        (
            ["--episode", "2", "--env", "CartPole-v1"],
            "in CartPole-v1: it is not known with which seed .*; leave env out",
        ),
        (["--episode", "0", "--env", "CartPole-v9"], "cannot be shown: .*CartPole-v9"),
        (["--episode", "0", "--env", "Acrobot-v1"], "cannot be shown: .* does not fit: its observation is float32.4,"),
        (["--episode", "0", "--output", "one.gif"], "ends in .mp4, not 'one.gif'"),
        ([], "callboard dataset video needs --episode"),
        (["--episode", "0", "--json"], "--json is not for callboard dataset video"),
        (["--episode", "one"], "--episode must be a whole number, not 'one'"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(cartpole, words, problem, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["dataset", "video", cartpole, *words]) == 2
    assert re.search(problem, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("episode", "metadata", "why"),
    [
        (2, METADATA, "it is not known with which seed the episode began; those of episodes 0, 1, 3 are known."),
        (3, METADATA, "played again, it differs from step 2 on"),
        (0, {}, "the data set names no environment that could play it again: name it with --env"),
        (0, named("planted:Environment"), "names the environment 'planted:Environment', and only those of libraries"),
        (0, named("gymnasium:planted:X-v0"), "only those of libraries"),
        (0, named("recorded:/etc"), "only those of libraries"),
        (0, named("external:/etc/passwd"), "only those of libraries"),
        (0, named("CartPole-v1", env_wrappers=["planted:Wrapper"]), "only those of libraries"),
        (0, named("Hopper-v5", xml_file="./planted.xml"), "only those of libraries are made .* that name no file"),
        (0, named("Nowhere-v1"), "Nowhere"),
        (0, named("CartPole-v1", nothing=3), "nothing"),
    ],
)
def test_a_graph_is_shown_where_no_environment_plays_the_episode_again(
    cartpole, episode, metadata, why, tmp_path, capsys, monkeypatch
):
    """Nothing is imported that metadata name: who has recorded them may be anybody."""
    (tmp_path / "planted.py").write_text("open('mark', 'w')\n")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(cartpole, tmp_path / "set-v0")
    file = tmp_path / "set-v0" / "data" / "metadata.json"
    found = {key: value for key, value in json.loads(file.read_text()).items() if key != "callboard"}
    file.write_text(json.dumps({**found, **metadata}))
    assert main(["dataset", "video", "set-v0", "--episode", str(episode), "--output", "one.mp4"]) == 0
    printed = capsys.readouterr().out
    assert re.search(f"It shows the recorded numbers, because .*{why}", printed)
    frames = imageio.imread("one.mp4", plugin="pyav")
    assert frames.shape[1:] == (6 * 48, 640, 3) and frames.shape[0] == {0: 7, 2: 4, 3: 5}[episode]
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 100
    assert not (tmp_path / "mark").exists() and "planted" not in sys.modules


def test_an_environment_that_is_named_plays_an_episode_again(cartpole, tmp_path, capsys):
    assert (
        main(["dataset", "video", cartpole, *f"--episode 0 --env CartPole-v1 --output {tmp_path}/a.mp4".split()]) == 0
    )
    assert capsys.readouterr().out == f"video: {tmp_path}/a.mp4\n"
    assert imageio.imread(tmp_path / "a.mp4", plugin="pyav").shape[1:] == (400, 600, 3)


def test_texts_of_others_are_printed_without_control_codes(cartpole, tmp_path, capsys):
    shutil.copytree(cartpole, tmp_path / "set-v0")
    file = tmp_path / "set-v0" / "data" / "metadata.json"
    text = "\x1b]0;title\x07x\nfolder  /forged"
    changes = {"algorithm_name": text, "callboard": {"environment": text}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert main(["dataset", "info", str(tmp_path / "set-v0")]) == 0
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable() and "\nfolder  /forged" not in printed
    assert r"recorded by  \x1b]0;title\x07x\nfolder  /forged" in printed


def test_choices_have_whole_numbers_at_their_axis(cartpole, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "callboard.studies.datasets.dataset_plots.write_plot", lambda picture, path: shown.append(picture)
    )
    dataset_plots.plot_dataset(dataset_info(cartpole), tmp_path / "plot.png")
    of_actions = shown[0].axes[3]
    assert all(place == round(place) for place in of_actions.get_xticks())


def test_pictures_in_the_observations_are_shown(tmp_path):
    spec = EnvironmentSpec(
        {"camera": dm_specs.BoundedArray((40, 36, 1), np.uint8, 0, 255), "speed": dm_specs.Array((), np.float32)},
        dm_specs.BoundedArray((1,), np.float32, -1.0, 1.0),
    )
    camera = np.zeros((4, 40, 36, 1), np.uint8)
    camera[2] = 200
    episode = {
        "observation": {"camera": camera, "speed": np.zeros(4, np.float32)},
        "action": np.zeros((3, 1), np.float32),
        "reward": np.ones(3),
        "terminated": True,
    }
    video = tmp_path / "episode.mp4"
    assert dataset_video(write(tmp_path / "set-v0", spec, [episode]), 0, video) == video
    frames = imageio.imread(video, plugin="pyav")
    assert frames.shape == (4, 320, 288, 3)
    assert [round(float(frame.mean()), -1) for frame in frames] == [0, 0, 200, 0]


@pytest.mark.slow
def test_the_commands_of_the_guide_work_as_they_are_written(tmp_path):
    """Also the evaluation that a run from these data alone proposes at its end."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "guides" / "recorded_data.md").read_text()
    recording = page.split("## Recording")[1].split("```\n")[1]
    looking = page.split("## Looking at it")[1].split("```\n")[1]
    commands = [*f"{recording}{looking}".replace("\\\n", "").splitlines()]
    assert [command.split()[1] for command in commands] == ["train", "dataset", "dataset", "train", "dataset"]
    learning = "callboard train bc --dataset runs/ppo --actors 0 --max-learner-steps 20 --run-dir runs/bc"
    printed = [_printed(command, tmp_path) for command in [*commands, learning]]
    assert "It shows the recorded numbers, because it is not known with which seed" in printed[2]
    assert printed[4].splitlines() == ["video: played.mp4"]
    assert imageio.imread(tmp_path / "episode.mp4", plugin="pyav").shape[1:] == (6 * 48, 640, 3)
    assert imageio.imread(tmp_path / "played.mp4", plugin="pyav").shape[1:] == (400, 600, 3)
    (evaluation,) = [line.strip() for line in printed[5].splitlines() if "callboard evaluate" in line]
    assert "--env CartPole-v1" in evaluation
    assert "mean " in _printed(f"{evaluation} --episodes 2", tmp_path)


def _printed(command, folder):
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
