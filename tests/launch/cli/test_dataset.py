"""`callboard dataset`: numbers, plots and videos of recorded episodes."""

import json
import re

import imageio.v3 as imageio
import numpy as np
import pytest
from dm_env import specs as dm_specs
from recorded_sets import CARTPOLE, cartpole_episode, write

from callboard import dataset_video
from callboard.launch.cli.command import main
from callboard.specs import EnvironmentSpec

pytest.importorskip("minari")

METADATA = {"algorithm_name": "ppo", "callboard": {"environment": "CartPole-v1", "environment_options": {}, "seed": 5}}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A data set of two episodes that can be played again, one without a seed and one that did not happen so."""
    episodes = [cartpole_episode(7, 6), cartpole_episode(8, 9), cartpole_episode(9, 3), cartpole_episode(10, 4)]
    episodes[2]["seed"] = None
    episodes[3]["observation"][2] += 0.1
    return write(tmp_path_factory.mktemp("sets") / "cartpole-v0", CARTPOLE, episodes, METADATA)


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
        (["--episode", "2"], "hold no pictures, and to play it again the data set .* has no seed of it.* 0, 1, 3"),
        (["--episode", "3"], "differs from step 2 on"),
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
