"""Pictures of training: a window and videos of the first environment's episodes, which never stop the training."""

import imageio.v3 as imageio
import numpy as np
import pytest
from local_nodes import small_run

from callboard.data import Timestep
from callboard.environments import EnvironmentWrapper, make
from callboard.launch.pictures.training_pictures import PicturedEnvironment, TrainingVideos, TrainingWindow
from callboard.launch.run_directory.layout import RunDirectory


class Viewer:
    def __init__(self, wants_picture=True):
        self.wants_picture = wants_picture
        self.calls = []

    def __getattr__(self, name):
        return lambda *frames: self.calls.append(name if not frames else frames[0])


class Scripted(EnvironmentWrapper):
    """Replays the ends of episodes; its pictures are numbered."""

    def __init__(self, ends):
        super().__init__(make("CartPole-v1", 2, [1, 2]))
        self._ends = iter(ends)
        self._picture = 0

    def reset(self):
        return self._timestep(True, False)

    def step(self, actions):
        return self._timestep(*next(self._ends))

    def render(self):
        self._picture += 1
        return self._picture

    def _timestep(self, first, last):
        # Only the first environment is shown.
        two = (np.zeros(2), np.ones(2), np.array([first, True]), np.array([last, False]))
        return Timestep(None, *two)


@pytest.mark.parametrize(
    "ends, calls",
    [
        ([(False, False), (False, True), (True, False)], ["begin", 1, 2, 3, "end", "begin", 4, "close"]),
        # Reset in the same step.
        ([(False, False), (True, False), (False, False)], ["begin", 1, 2, "end", "begin", 3, 4, "close"]),
    ],
)
def test_episodes_are_seen_from_their_first_to_their_last_picture(ends, calls):
    viewer = Viewer()
    environment = PicturedEnvironment(Scripted(ends), [viewer], pytest.fail)
    environment.reset()
    for _ in ends:
        environment.step(None)
    environment.close()
    assert viewer.calls == calls


def test_no_picture_is_made_that_no_viewer_wants():
    environment = Scripted([(False, False)])
    pictured = PicturedEnvironment(environment, [Viewer(wants_picture=False)], pytest.fail)
    pictured.reset()
    pictured.step(None)
    assert environment._picture == 0


def test_a_viewer_that_raises_is_reported_once_and_training_continues():
    said, other = [], Viewer()
    broken = Viewer()
    broken.see = lambda frame, seconds: 1 / 0
    environment = PicturedEnvironment(Scripted([(False, False)] * 3), [broken, other], said.append)
    environment.reset()
    for _ in range(3):
        environment.step(None)
    assert said == ["no more pictures of training: ZeroDivisionError: division by zero; training continues"]
    assert other.calls == ["begin", 1, 2, 3, 4] and broken.calls[-1] == "close"


def test_every_second_episode_is_recorded_whole(tmp_path):
    directory = RunDirectory(tmp_path)
    frame = np.zeros((5, 7, 3), np.uint8)
    videos = TrainingVideos(2, directory, 10.0, lambda: 40)
    for length in (3, 2, 4, 2, 5):
        videos.begin()
        for _ in range(length):
            if videos.wants_picture:
                videos.see(frame, 0.0)
        if length != 5:
            videos.end()
    videos.close()
    names = sorted(path.name for path in directory.videos.iterdir())
    assert names == ["training-000000000040.mp4", "training-000000000041.mp4"]
    shapes = [imageio.imread(directory.videos / name, plugin="pyav").shape for name in names]
    assert shapes == [(3, 4, 6, 3), (4, 4, 6, 3)]
    assert list((tmp_path / "tensorboard" / "training_videos").iterdir())


def test_a_window_shows_what_is_due_until_it_is_closed(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    said = []
    window = TrainingWindow("a run", 1.0, said.append)
    frame = np.zeros((4, 6, 3), np.uint8)
    assert window.wants_picture
    window.see(frame, 20.0)
    assert pygame.display.get_surface().get_size() == (6, 4)
    assert not window.wants_picture and said == []
    window._view._due = 0.0
    assert not window.wants_picture, "a picture that takes so long is seldom made"
    window._pause.restart(0.0)
    assert window.wants_picture
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window.see(frame, 0.0)
    assert not window.wants_picture and said == ["the window is closed; training continues"]
    assert not pygame.display.get_init()


@pytest.mark.slow("daily")
def test_an_actor_records_its_first_environment(tmp_path):
    options = ("--training-video-every", 1, "--env-options.max_episode_steps", 5)
    with small_run("impala-cartpole", tmp_path, *options) as nodes:
        for _ in range(7):
            nodes["actor/0"].step()
        nodes["actor/0"].finish()
    first, *_ = sorted((tmp_path / "videos").iterdir())
    assert imageio.imread(first, plugin="pyav").shape == (6, 400, 600, 3)
