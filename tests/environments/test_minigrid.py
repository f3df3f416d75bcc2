"""MiniGrid: its grid as planes, its options, and mistakes."""

import gymnasium
import numpy as np
import pytest
from refused_names import assert_refused

from callboard import environments

pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
NAME = "MiniGrid-DoorKey-5x5-v0"


def test_planes_are_one_hot_and_hold_what_minigrid_shows():
    batch, single = environments.make(NAME, 1, [4]), gymnasium.make(NAME)
    timestep, (expected, _) = batch.reset(), single.reset(seed=4)
    over = False
    for index in range(300):
        image, direction = timestep.observation["image"][0], timestep.observation["direction"][0]
        assert image.dtype == np.bool_ and image.shape == (7, 7, 21)
        decoded = np.stack([part.argmax(-1) for part in np.split(image, [11, 17], axis=-1)], axis=-1)
        np.testing.assert_array_equal(decoded, expected["image"])
        assert (image.sum(-1) == 3).all()
        assert direction == expected["direction"]
        action = index % 7
        timestep = batch.step(np.array([action], np.int32))
        if over:
            over, (expected, _) = False, single.reset()
        else:
            expected, reward, terminated, truncated, _ = single.step(action)
            over = terminated or truncated
            assert timestep.reward[0] == np.float32(reward)
            assert timestep.discount[0] == (not terminated)
        assert timestep.last[0] == over


def test_the_whole_grid_is_an_option():
    assert environments.spec(NAME, {"fully_observed": True}).observation["image"].shape == (5, 5, 21)
    assert environments.spec(NAME, {"size": 6, "fully_observed": True}).observation["image"].shape == (6, 6, 21)


def test_gymnasium_gives_minigrids_own_observations_for_its_wrappers():
    options = {"env_wrappers": "minigrid.wrappers:ImgObsWrapper"}
    assert environments.spec(f"gymnasium:{NAME}", options).observation.shape == (7, 7, 3)


def test_mistakes_are_refused():
    assert_refused(
        "MiniGrid-DoorKei-5x5-v0",
        {},
        "unknown environment 'MiniGrid-DoorKei-5x5-v0'; did you mean 'MiniGrid-DoorKey-5x5-v0'?",
    )
    assert_refused(NAME, {"siz": 3}, f"environment '{NAME}' has no option 'siz'; did you mean 'size'?")
    wrong = {"fully_observed": 1}
    assert_refused(NAME, wrong, f"environment '{NAME}': fully_observed must be true or false, not 1")
