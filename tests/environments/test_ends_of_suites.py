"""What the environments of each suite show where episodes end and begin, whatever the suite's own interface is."""

import numpy as np
import pytest
import tree

from callboard import environments
from callboard.agents.policies.acting import Stepper
from callboard.environments.checks.trial import random_actions
from callboard.errors import MissingPackage

SAME = {"env_python": "same"}
CUT_OFF = [
    ("ALE/Breakout-v5", {"max_num_frames_per_episode": 16, "noop_max": 0}),
    ("MinAtar/Breakout-v1", {"max_episode_steps": 4}),
    ("dm_control:cartpole-balance", {"time_limit": 0.04}),
    ("MiniGrid-Empty-8x8-v0", {"max_steps": 4}),
    ("Pendulum-v1", {"max_episode_steps": 4}),
    ("CartPole-v1", {"max_episode_steps": 4}),
    ("CartPole-v1", {"max_episode_steps": 4, "vectorized": False}),
    ("CartPole-v1", {"max_episode_steps": 4, **SAME}),
]
TERMINATED = [
    ("bsuite:catch/0", {}),
    ("MinAtar/Breakout-v1", {}),
    ("CartPole-v1", {}),
    ("CartPole-v1", {"vectorized": False}),
    ("CartPole-v1", SAME),
]


def played(name, options, steps):
    """The timesteps of two environments, and the number of steps that were counted."""
    try:
        batch = environments.make(name, 2, [3, 4], options)
    except MissingPackage as error:
        pytest.skip(f"an optional suite of environments is not installed: {error}")
    rng = np.random.default_rng(0)
    try:
        stepper = Stepper(batch)
        timesteps = [tree.map_structure(np.copy, stepper.timestep)]
        for _ in range(steps):
            stepper.step(random_actions(batch.spec, timesteps[-1].observation, rng, 2))
            timesteps.append(tree.map_structure(np.copy, stepper.timestep))
        return timesteps, stepper.environment_steps
    finally:
        batch.close()


def check_ends(timesteps, counted, discount):
    """Every episode ends with its last observation and this discount, and the reset after it is no transition."""
    ends = 0
    for slot in (0, 1):
        assert timesteps[0].first[slot] and not timesteps[0].last[slot]
        for before, after in zip(timesteps[:-1], timesteps[1:], strict=True):
            assert after.first[slot] == before.last[slot]
            assert after.discount[slot] == (discount if after.last[slot] else 1.0)
            if after.first[slot]:
                assert after.reward[slot] == 0 and not after.last[slot]
                ends += 1
    assert ends > 2
    assert counted == sum(int((~timestep.first).sum()) for timestep in timesteps[1:])


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name, options", CUT_OFF, ids=str)
def test_a_time_limit_is_no_termination(name, options):
    check_ends(*played(name, options, 20), discount=1.0)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name, options", TERMINATED, ids=str)
def test_a_termination_has_no_future(name, options):
    check_ends(*played(name, options, 120), discount=0.0)
