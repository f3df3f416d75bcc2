"""The two-step game pays what the paper says for every pair of joint actions."""

import itertools

import numpy as np
import pytest

from callboard import environments

GAME = "callboard.environments.two_step_game:TwoStepGame"


@pytest.mark.parametrize("choice", [0, 1])
def test_the_second_step_pays_by_the_first_action_of_agent_0(choice):
    pairs = np.array(list(itertools.product((0, 1), repeat=2)), np.int32)
    batch = environments.make(GAME, len(pairs), list(range(len(pairs))), {})
    assert list(batch.spec.action) == ["agent_0", "agent_1"]
    timestep = batch.reset()
    np.testing.assert_array_equal(timestep.observation["state"], np.tile([1, 0, 0], (4, 1)))
    timestep = batch.step({"agent_0": np.full(4, choice, np.int32), "agent_1": pairs[:, 1]})
    assert not timestep.reward.any() and not timestep.last.any()
    for part in timestep.observation.values():
        np.testing.assert_array_equal(part, np.tile(np.eye(3)[1 + choice], (4, 1)))
    timestep = batch.step({"agent_0": pairs[:, 0], "agent_1": pairs[:, 1]})
    assert timestep.reward.tolist() == ([0, 1, 1, 8] if choice else [7, 7, 7, 7])
    assert timestep.last.all() and not timestep.discount.any()
    assert batch.step({"agent_0": pairs[:, 0], "agent_1": pairs[:, 1]}).first.all()
