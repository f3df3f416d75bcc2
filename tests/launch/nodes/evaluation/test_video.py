"""Videos: one frame for each timestep, of an even size, and no file where an environment cannot render."""

import dataclasses

import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest
from untrained_runs import SMALL, untrained_players, write_run

from callboard.errors import CallboardError
from callboard.launch.nodes.evaluation.video import check_video, record_video
from callboard.launch.pictures.video_files import even


class Unseen(gymnasium.Env):
    """Renders nothing."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, True, False, {}


def record(directory, *options):
    experiment, run = write_run(directory, options=[*options, *SMALL])
    players = untrained_players(experiment)
    path = run.videos / "best.mp4"
    return path, record_video(experiment, players, path, 2, print)


@pytest.mark.slow("daily")
def test_a_video_has_a_frame_for_every_timestep(tmp_path):
    path, episodes = record(tmp_path, "--env=CartPole-v1", "--env-options.max_episode_steps=7")
    assert [episode.length for episode in episodes] == [7, 7]
    # The first observation of each episode is shown too.
    assert imageio.imread(path, plugin="pyav").shape == (2 * 8, 400, 600, 3)
    assert list(path.parent.iterdir()) == [path]


def test_an_environment_that_cannot_render_leaves_no_file(tmp_path):
    gymnasium.register("Unseen-v0", Unseen)
    try:
        with pytest.raises(CallboardError, match="render"):
            record(tmp_path, "--env=Unseen-v0")
    finally:
        del gymnasium.registry["Unseen-v0"]
    assert not list((tmp_path / "videos").iterdir())


def test_videos_of_an_environment_without_pictures_are_refused_before_the_start(tmp_path):
    experiment, _ = write_run(tmp_path, options=["--env=CartPole-v1", *SMALL])
    filmed = dataclasses.replace(experiment, video_every=5)
    check_video(filmed, filmed.agent_specs())
    gymnasium.register("Unseen-v0", Unseen)
    try:
        unseen = dataclasses.replace(experiment, env="Unseen-v0")
        check_video(unseen, unseen.agent_specs())
        with pytest.raises(CallboardError, match="video_every needs pictures, so leave it out: .*render") as caught:
            check_video(dataclasses.replace(unseen, video_every=5), unseen.agent_specs())
        assert "\n" not in str(caught.value)
        for name, value in (("training_video_every", 5), ("render", "human")):
            with pytest.raises(CallboardError, match=f"{name} needs pictures, so leave it out: .*render"):
                check_video(dataclasses.replace(unseen, **{name: value}), unseen.agent_specs())
            check_video(dataclasses.replace(experiment, **{name: value}), experiment.agent_specs())
    finally:
        del gymnasium.registry["Unseen-v0"]


@pytest.mark.parametrize("shape, expected", [((5, 7, 3), (4, 6, 3)), ((4, 6, 3), (4, 6, 3))])
def test_frames_are_cropped_to_an_even_size(shape, expected):
    frame = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(even(frame), frame[: expected[0], : expected[1]])
