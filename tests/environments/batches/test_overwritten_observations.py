"""Final observations in the same-step mode: equal to the next first one in truth, or overwritten by it."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from callboard.environments import GymnasiumVectorBatch
from callboard.transitions import valid_transitions


class Bandit(gym.Env):
    """One step per episode, ended by a time limit, in one state."""

    observation_space, action_space = spaces.Box(-1, 9, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action), False, True, {}


class OneObservation(Bandit):
    """Always returns the same object, which never changes."""

    observation = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.observation, float(action), False, True, {}


class Overwriting(Bandit):
    """Counts its steps in one array."""

    def __init__(self):
        self.observation = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.observation[:] = 0
        return self.observation, {}

    def step(self, action):
        self.observation[:] += 1
        return self.observation, 1.0, False, bool(self.observation[0] == 2), {}


class Native(VectorEnv):
    """A vector environment of its own kind whose episodes have two steps."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space, single_action_space = Bandit.observation_space, Bandit.action_space

    def __init__(self, copies):
        self.num_envs, self.copies = 2, copies
        self.observation_space = batch_space(self.single_observation_space, 2)
        self.action_space = batch_space(self.single_action_space, 2)
        self.observation = np.zeros((2, 1), np.float32)

    def reset(self, *, seed=None, options=None):
        self.observation[:] = 0
        return self.observation.copy(), {}

    def step(self, actions):
        self.observation += 1
        final = self.observation.copy() if self.copies else self.observation
        over = self.observation[:, 0] == 2
        info = {"final_obs": final, "_final_obs": over} if over.any() else {}
        self.observation[over] = 0
        return self.observation, np.ones(2), np.zeros(2, bool), over, info


def valid(batch, steps=20):
    timesteps = [batch.reset()] + [batch.step(np.ones(2, np.int32)) for _ in range(steps)]
    first, last, discount = (
        np.stack([getattr(one, name) for one in timesteps]) for name in ("first", "last", "discount")
    )
    return int(valid_transitions(first, last, discount[1:]).sum())


@pytest.mark.parametrize("kind", [Bandit, OneObservation])
@pytest.mark.parametrize("copy", [True, False])
def test_a_final_observation_may_equal_the_next_first_one(kind, copy):
    counts = {
        mode: valid(GymnasiumVectorBatch(SyncVectorEnv([kind] * 2, copy=copy, autoreset_mode=mode), [1, 2]))
        for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    }
    assert counts == {AutoresetMode.NEXT_STEP: 20, AutoresetMode.SAME_STEP: 20}


@pytest.mark.slow("daily")
def test_it_may_also_in_processes():
    batch = GymnasiumVectorBatch(
        AsyncVectorEnv([Bandit] * 2, autoreset_mode=AutoresetMode.SAME_STEP, context="spawn"), [1, 2]
    )
    try:
        assert valid(batch) == 20
    finally:
        batch.close()


def reported(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("copy", [True, False])
def test_the_last_transitions_are_left_out_where_it_is_overwritten(copy, caplog):
    vector = SyncVectorEnv([Overwriting] * 2, copy=copy, autoreset_mode=AutoresetMode.SAME_STEP)
    batch = GymnasiumVectorBatch(vector, [1, 2])
    # Of 10 episodes with 2 transitions each, the first has shown that all others lack the last one.
    assert valid(batch) == 22
    (message,) = reported(caplog)
    assert message.startswith("SyncVectorEnv writes all observations into one array, so that the first one of an")
    next_step = SyncVectorEnv([Overwriting] * 2, copy=copy, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert valid(GymnasiumVectorBatch(next_step, [1, 2])) == 28 and len(caplog.records) == 1


def test_so_they_are_in_a_vector_environment_of_another_kind(caplog):
    assert valid(GymnasiumVectorBatch(Native(copies=True), [1, 2])) == 28 and not caplog.records
    assert valid(GymnasiumVectorBatch(Native(copies=False), [1, 2])) == 20
    assert [message.partition(" ")[0] for message in reported(caplog)] == ["Native"]
