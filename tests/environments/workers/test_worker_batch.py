"""Environments in workers against the same ones in this process."""

import numpy as np
import pytest
from played_batches import played

from callboard import environments
from callboard.environments.workers.worker_process import WorkerError
from callboard.errors import CallboardError

MASK = "callboard.environments.info_masks:MaskFromInfo"
SAME = {"env_python": "same"}
PENDULUM = {"env_wrappers": [{"name": "RescaleAction", "min_action": -1, "max_action": 1}, "TimeAwareObservation"]}


def assert_equal(name, options, task=None):
    here, there = played(name, options, task), played(name, {**options, **SAME}, task)
    for index, (one, other) in enumerate(zip(here[0], there[0], strict=True)):
        assert one == other, index
    assert here[1] == there[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, options, task",
    [
        ("CartPole-v1", {}, None),
        ("worker_cases:Walk", {"length": 4, "speed": 2}, 3),
        ("worker_cases:dm_walk", {}, None),
    ],
)
def test_trajectories_are_equal_to_the_bit(name, options, task):
    assert_equal(name, options, task)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, options, task",
    [
        ("worker_cases:Masked", {"env_wrappers": [MASK]}, None),
        ("worker_cases:Masked", {}, {"easy": 1}),
        ("worker_cases:same_step", {}, {"easy": 1}),
        ("worker_cases:next_step", {}, {"easy": 1}),
        ("worker_cases:next_step", {"env_wrappers": MASK}, None),
        ("worker_cases:Old", {"env_wrappers": "OldGym"}, None),
        ("worker_cases:OldMasked", {"env_wrappers": "OldGym"}, None),
        ("Pendulum-v1", PENDULUM, None),
        ("CartPole-v1", {"vectorized": False, "env_previous_inputs": True}, None),
        ("Taxi-v4", {"env_wrappers": MASK}, None),
        ("Blackjack-v1", {}, None),
        ("HalfCheetah-v5", {}, None),
        ("ALE/Pong-v5", {}, None),
    ],
)
def test_more_trajectories_are_equal_to_the_bit(name, options, task):
    assert_equal(name, options, task)


def test_pictures_calls_and_errors_come_from_the_worker():
    batch = environments.make("worker_cases:Walk", 1, [3], {**SAME, "render_mode": "rgb_array", "wrong": "raise"})
    batch.reset()
    batch.step(np.zeros(1, np.int32))
    assert batch.frames_per_second == 7
    np.testing.assert_array_equal(batch.render(), np.full((4, 6, 3), 1, np.uint8))
    (vector,) = batch.environments
    assert vector.call("where") == ((0, None, 0, 0, {}),)
    batch.step(np.zeros(1, np.int32))
    with pytest.raises(WorkerError, match=r"^lost the way \(worker_cases.py, line \d+\)$") as raised:
        batch.step(np.zeros(1, np.int32))
    assert type(raised.value).__name__ == "ValueError"
    assert 'raise ValueError("lost the way")' in str(raised.value.__cause__)
    batch.close()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["shape", "choice", "part", "old", "reward", "flag"])
def test_what_an_environment_does_wrong_is_reported_as_in_this_process(wrong):
    messages = []
    for options in ({}, SAME):
        batch = environments.make("worker_cases:Walk", 1, [3], {**options, "wrong": wrong})
        batch.reset()
        with pytest.raises(CallboardError) as raised:
            for _ in range(3):
                batch.step(np.zeros(1, np.int32))
        messages.append(str(raised.value))
        batch.close()
    if wrong == "flag":  # A flag is looked at in the first step, and where an episode ends.
        assert "'no'" in messages[1]
    assert messages[0] == messages[1]


@pytest.mark.slow("daily")
def test_evaluations_leave_out_wrappers_that_change_rewards():
    wrappers = [{"name": "ClipReward", "min_reward": 0, "max_reward": 0.5}, "TimeAwareObservation"]
    options = {**SAME, "env_wrappers": wrappers}
    env, evaluated = environments.for_evaluation("Acrobot-v1", options)
    rewards = []
    for own in (options, evaluated):
        batch = environments.make(env, 1, [1], own)
        batch.reset()
        timestep = batch.step(np.zeros(1, np.int32))
        assert timestep.observation.shape == (1, 7)
        rewards.append(float(timestep.reward[0]))
        batch.close()
    assert rewards == [0.0, -1.0]


def test_plain_data_arrive_as_they_are_and_what_is_wrong_is_reported():
    levels = {1: (0.5, 2), "array": np.ones(2, np.int16)}
    batch = environments.make("worker_cases:Plain", 1, [3], {**SAME, "levels": levels})
    batch.keep_infos()
    batch.set_task({1: (2,)})
    batch.reset()
    assert batch.infos.begun == [{1: 0, "x": 1, "_x": 2, "task": {1: (2,)}}]
    (vector,) = batch.environments
    assert vector.call("same", {2: (1, np.int64(3))}) == ({2: (1, 3)},)
    with pytest.raises(WorkerError, match="has no attribute 'nothing'"):
        vector.call("nothing")
    batch.step(np.zeros(1, np.int32))
    with pytest.raises(CallboardError, match="^'step' of Plain gives the reward 1000"):
        batch.step(np.zeros(1, np.int32))
    batch.close()
