"""The Control Suite: the same tasks as dm_control's own, as timesteps."""

import numpy as np
import pytest
import tree
from refused_names import assert_refused

from callboard import environments
from callboard.environments.adapters.dm_control import DmControlOptions, check_dm_control, dm_control_tasks

pytest.importorskip("dm_control", reason="the extra dm-control is not installed")


def test_timesteps_are_those_of_dm_control_with_the_same_seeds():
    from dm_control import suite

    seeds = [5, 8]
    batch = environments.make("dm_control:walker-walk", 2, seeds)
    singles = [suite.load("walker", "walk", task_kwargs={"random": seed}) for seed in seeds]
    timestep, expected = batch.reset(), [single.reset() for single in singles]
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows = [tree.map_structure(np.float32, dict(one.observation)) for one in expected]
        tree.map_structure(
            lambda leaf, *leaves: np.testing.assert_array_equal(leaf, np.stack(leaves)), timestep.observation, *rows
        )
        np.testing.assert_allclose(timestep.reward, [one.reward or 0.0 for one in expected], rtol=1e-6)
        actions = rng.uniform(-1, 1, (2, 6)).astype(np.float32)
        timestep = batch.step(actions)
        expected = [single.step(action) for single, action in zip(singles, actions, strict=True)]
    assert batch.frames_per_second == 40
    batch.close()


def test_repeated_actions_add_rewards_and_a_time_limit_truncates():
    def play(options):
        batch = environments.make("dm_control:cartpole-balance", 1, [3], {"time_limit": 0.1, **options})
        batch.reset()
        timesteps = []
        while not (timesteps and timesteps[-1].last[0]):
            timesteps.append(batch.step(np.full((1, 1), 0.3, np.float32)))
        return timesteps

    once, repeated = play({}), play({"action_repeat": 4})
    assert (len(once), len(repeated)) == (10, 3)
    np.testing.assert_allclose(repeated[0].reward[0], sum(one.reward[0] for one in once[:4]), rtol=1e-5)
    np.testing.assert_allclose(repeated[-1].reward[0], sum(one.reward[0] for one in once[8:]), rtol=1e-5)
    assert repeated[-1].discount.tolist() == [1.0]
    assert repeated[-1].first.tolist() == [False]


def test_pictures_are_observations_and_are_rendered():
    from dm_control import suite

    try:
        suite.load("cartpole", "balance").physics.render(8, 8)
    except Exception as error:  # dm_control raises errors of many kinds where OpenGL is missing.
        pytest.skip(f"dm_control cannot render on this machine: {error}")
    batch = environments.make("dm_control:cartpole-balance", 1, [3], {"pixels": True, "size": 32})
    observation = batch.reset().observation
    shown = batch.render()
    assert (observation.dtype, observation.shape) == (np.uint8, (1, 32, 32, 3))
    assert shown.shape == (240, 240, 3) and shown.std() > 1
    batch.close()


def test_mistakes_are_refused():
    assert_refused(
        "dm_control:walker-wolk",
        {},
        "unknown environment 'dm_control:walker-wolk'; did you mean 'dm_control:walker-walk'?",
    )
    assert_refused(
        "dm_control:walker-walk",
        {"repeat": 2},
        "environment 'dm_control:walker-walk' has no option 'repeat'; did you mean 'action_repeat'?",
    )


def test_every_listed_task_is_known():
    assert {"cheetah-run", "humanoid-run", "ball_in_cup-catch"} <= set(dm_control_tasks())
    assert all(check_dm_control(name, {}) == DmControlOptions() for name in dm_control_tasks())
