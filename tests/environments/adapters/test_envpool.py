"""EnvPool: its batches as timesteps, its seeds and options, and mistakes."""

import numpy as np
import pytest
from dm_env import specs
from refused_names import assert_refused

from callboard import environments

pytest.importorskip("envpool", reason="the extra envpool is not installed")


def play(seed, steps=60):
    batch = environments.make("envpool:CartPole-v1", 3, [seed, 0, 0])
    timesteps = [batch.reset()]
    for index in range(steps):
        timesteps.append(batch.step(np.array([0, 1, index % 2], np.int32)))
    batch.close()
    return timesteps


def test_an_episode_ends_in_one_timestep_and_the_next_begins_in_the_one_after():
    timesteps = play(5)
    assert timesteps[0].first.all()
    lasts = np.array([timestep.last for timestep in timesteps])
    firsts = np.array([timestep.first for timestep in timesteps])
    assert lasts.sum() > 10
    np.testing.assert_array_equal(firsts[1:], lasts[:-1])
    for timestep in timesteps[1:]:
        np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)
        np.testing.assert_array_equal(timestep.reward, 1.0 - timestep.first)
        assert (np.abs(timestep.observation[timestep.first]) <= 0.05).all()


def test_the_seed_decides():
    first, same, other = (np.array([timestep.observation for timestep in play(seed)]) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    assert len({tuple(row) for row in first[0]}) == 3


def test_frames_of_atari_are_not_stacked():
    spec = environments.spec("envpool:Pong-v5")
    assert spec.observation == specs.BoundedArray((84, 84, 1), np.uint8, 0, 255)
    assert spec.action.num_values == 6
    assert environments.spec("envpool:Pong-v5", {"stack_num": 4}).observation.shape == (84, 84, 4)


def test_missing_bounds_are_infinite():
    observation = environments.spec("envpool:LunarLanderContinuous-v2").observation
    assert type(observation) is specs.Array


def test_options_that_change_scores_are_for_training_only():
    options = {"episodic_life": True, "reward_clip": True, "noop_max": 5}
    assert environments.for_evaluation("envpool:Pong-v5", options) == ("envpool:Pong-v5", {"noop_max": 5})


def test_mistakes_are_refused():
    name = "envpool:Pong-v5"
    assert_refused("envpool:Pog-v5", {}, "unknown environment 'envpool:Pog-v5'; did you mean 'envpool:Pong-v5'?")
    assert_refused(name, {"noop": 3}, f"environment '{name}' has no option 'noop'; did you mean 'noop_max'?")
    assert_refused(name, {"noop_max": "x"}, f"environment '{name}': noop_max must be a whole number, not 'x'")
    assert_refused(
        name,
        {"max_episode_steps": -1},
        f"environment '{name}': max_episode_steps is -1, it must be at least 1; leave it out for EnvPool's own",
    )
