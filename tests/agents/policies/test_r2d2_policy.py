"""R2D2's policy: its state, what its values depend on, and how it explores."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import ACTIONS, SPEC, layout_of

from callboard.agents.learning.network_inputs import Carried
from callboard.agents.r2d2 import R2D2
from callboard.data import Timestep
from callboard.networks.recurrent import LSTMState
from callboard.replay import without_frames
from callboard.settings.nested_settings import from_values, with_values
from callboard.specs import EnvironmentSpec

LSTM = 2
SMALL = from_values(R2D2, {"network.hidden_sizes": (3,), "network.lstm_size": LSTM, "network.stream_size": 0})


def timestep_of(batch: int, **fields: Any) -> Timestep:
    zeros = np.zeros(batch, np.float32)
    timestep = Timestep(np.ones((batch, 2), np.float32), zeros, zeros + 1, np.zeros(batch, bool), np.zeros(batch, bool))
    return timestep._replace(**fields)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("previous_inputs", [True, False])
def test_values_depend_on_what_was_done_and_what_it_paid(previous_inputs):
    agent = with_values(SMALL, {"network.previous_inputs": previous_inputs})
    policy = agent.make_policy(agent.make_networks(layout_of()), "train")
    state = Carried(policy.network.initial_state(4), np.array([0, 1, 0, 0], np.int32) if previous_inputs else (), ())
    tree.assert_same_structure(policy.initial_state(4), state if previous_inputs else state.core)
    timestep = timestep_of(4, reward=np.array([0, 0, 1, 0], np.float32), first=np.array([False, False, False, True]))

    def act(state: Any, timestep: Timestep) -> Any:
        return policy(timestep, state, tf.range(4), tf.constant([1, 1]))

    action, extras, after = act(state, timestep)
    q = extras.q.numpy()
    assert (np.abs(q[1:3] - q[0]).max(axis=-1) > 1e-4).tolist() == [previous_inputs] * 2
    if previous_inputs:
        np.testing.assert_array_equal(extras.previous_reward, timestep.reward)
        np.testing.assert_array_equal(after.previous_action, action)
    # Where an episode begins, all that was before is forgotten.
    other = state._replace(core=LSTMState(*np.ones((2, 4, LSTM), np.float32)))
    if previous_inputs:
        other = other._replace(previous_action=np.ones(4, np.int32))
    _, forgotten, _ = act(other, timestep_of(4, reward=np.ones(4, np.float32), first=np.ones(4, bool)))
    np.testing.assert_array_equal(forgotten.q, np.tile(q[3], (4, 1)))


@pytest.mark.slow("daily")
def test_it_explores_by_slot_to_train_and_not_at_all_to_be_evaluated():
    agent = with_values(SMALL, {"epsilon": 0.8, "epsilon_alpha": 3.0})
    networks = agent.make_networks(layout_of(envs_per_actor=3))

    def explored(mode: Any, steps: int) -> np.ndarray:
        policy = agent.make_policy(networks, mode)
        act = tf.function(policy, autograph=False)
        state = policy.initial_state(2)
        found = [act(timestep_of(2), state, tf.constant([0, 2]), tf.constant([1, seed])) for seed in range(steps)]
        return np.mean([action.numpy() != extras.q.numpy().argmax(axis=-1) for action, extras, _ in found], axis=0)

    np.testing.assert_array_equal(explored("evaluate", 30), 0)
    np.testing.assert_allclose(explored("train", 500), np.array([0.8, 0.8**4]) * (1 - 1 / ACTIONS), atol=0.08)


def test_the_initial_state_is_zero_and_has_the_dtype_of_the_action():
    spec = SPEC._replace(action=dm_specs.DiscreteArray(ACTIONS, np.int64))
    policy = SMALL.make_policy(SMALL.make_networks(layout_of(spec)), "train")
    state = policy.initial_state(4)
    assert state.previous_action.dtype == tf.int64 and state.frames == ()
    np.testing.assert_array_equal(state.previous_action, np.zeros(4))
    np.testing.assert_array_equal(state.core, np.zeros((2, 4, LSTM)))


def test_frames_are_carried_but_not_stored():
    agent = with_values(SMALL, {"frame_stack": 3, "network.torso": "mlp"})
    spec = EnvironmentSpec(dm_specs.BoundedArray((2, 2, 1), np.uint8, 0, 255), SPEC.action)
    policy = agent.make_policy(agent.make_networks(layout_of(spec)), "evaluate")
    state = policy.initial_state(1)
    for number in (1, 2, 3):
        timestep = timestep_of(1, observation=np.full((1, 2, 2, 1), number, np.uint8), first=np.array([number == 1]))
        _, _, state = policy(timestep, state, tf.range(1), tf.constant([1, number]))
    (frames,) = state.frames.newest.values()
    np.testing.assert_array_equal(frames, np.tile(np.array([2, 3], np.uint8), (1, 2, 2, 1)))
    stored = without_frames(state)
    assert stored.frames == ()
    assert stored.core.cell is state.core.cell and stored.previous_action is state.previous_action
