"""Videos of evaluations: every k of them, in the run directory and in TensorBoard."""

import dataclasses

import imageio.v3 as imageio
import numpy as np
import pytest
import tensorflow as tf
from local_nodes import small_run
from untrained_runs import untrained_players, write_run

from callboard.launch.nodes.evaluation.evaluation_videos import EvaluationVideos
from callboard.launch.pictures import video_files
from callboard.launch.pictures.video_files import ThinnedFrames


@pytest.fixture
def make_videos(tmp_path):
    made = []

    def make(every, said):
        experiment, directory = write_run(tmp_path / "run", best=False)
        players = untrained_players(experiment)
        experiment = dataclasses.replace(experiment, video_every=every)
        made.append(EvaluationVideos(experiment, players, directory, said.append, lambda environment: environment))
        return made[-1], directory

    yield make
    for videos in made:
        videos.close()


def pictures(directory):
    """Steps and pictures in TensorBoard's files."""
    found = []
    for path in sorted((directory.tensorboard / "videos").glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.tag == "videos/evaluation" and value.metadata.plugin_data.plugin_name == "images"
                found.append((event.step, list(value.tensor.string_val)))
    return sorted(found)  # Names of files of one second are not in order.


@pytest.mark.slow("daily")
def test_an_episode_is_recorded_after_every_second_evaluation(make_videos, monkeypatch):
    monkeypatch.setattr(video_files, "KEPT_VIDEOS", 1)
    said = []
    videos, directory = make_videos(2, said)
    for steps in (100, 200, 300, 400):
        videos.after_evaluation(steps, lambda: False)
    videos.close()
    assert [path.name for path in directory.videos.iterdir()] == ["evaluation-000000000400.mp4"]
    assert len(imageio.imread(directory.videos / "evaluation-000000000400.mp4", plugin="pyav")) == 8
    (first, _), (second, (width, height, gif)) = pictures(directory)
    assert (first, second) == (200, 400) and said == []
    count, *size = imageio.imread(gif, extension=".gif").shape
    assert 1 < count <= 8 and size == [int(height), int(width), 3]
    assert max(int(width), int(height)) <= 240


def test_an_episode_that_is_abandoned_leaves_nothing(make_videos):
    said = []
    videos, directory = make_videos(1, said)
    videos.after_evaluation(100, lambda: True)
    assert list(directory.videos.iterdir()) == [] and not pictures(directory) and said == []


def test_an_environment_that_fails_is_reported_once(make_videos, monkeypatch):
    said = []
    videos, directory = make_videos(1, said)

    def fail(*arguments):
        raise RuntimeError("no graphics\ncard")

    monkeypatch.setattr(videos._recorder, "record", fail)
    videos.after_evaluation(100, lambda: False)
    videos.after_evaluation(200, lambda: False)
    assert said == ["no video was recorded: no graphics card; training continues"]


@pytest.mark.parametrize("count, kept", [(3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 2, 4]), (11, [0, 4, 8])])
def test_frames_are_evenly_spaced(count, kept):
    frames = ThinnedFrames(4)
    for index in range(count):
        frames.add(np.full((2, 2, 3), index))
    assert [int(frame[0, 0, 0]) for frame in frames.frames] == kept


@pytest.mark.slow("daily")
def test_the_evaluator_records_what_it_has_evaluated(tmp_path):
    options = ("--video-every", 1, "--evaluation-episodes", 2, "--evaluation-envs", 2)
    with small_run("impala-cartpole", tmp_path, *options, "--env-options.max_episode_steps", 9) as nodes:
        evaluator = nodes["evaluator/0"]
        evaluator._next_steps = 0
        evaluator.step()
        evaluator.finish()
    (video,) = (tmp_path / "videos").iterdir()
    assert video.name == "evaluation-000000000000.mp4"
    assert list((tmp_path / "tensorboard" / "videos").iterdir())
