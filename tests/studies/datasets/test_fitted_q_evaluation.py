"""Fitted Q evaluation of policies whose value is known."""

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard.specs import EnvironmentSpec
from callboard.studies.datasets import fitted_q_evaluation as module
from callboard.studies.datasets.fitted_q_evaluation import (
    FittedQSettings,
    Transitions,
    fitted_q_evaluation,
    value_range,
)

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.DiscreteArray(2, np.int32))
SETTINGS = FittedQSettings(steps=600, batch_size=64, learning_rate=3e-3, hidden_sizes=(32,), target_update_rate=0.05)
GAMMA = 0.8


def transitions(next_action):
    """Every action at the places 0 and 1 of a corridor, once and again: 1 leads on, 0 back to the beginning.

    A step to place 2 gives 1 and ends the episode; each other one gives -0.1.
    """
    place = np.tile([0, 0, 1, 1], 64)
    action = np.tile([0, 1], 128).astype(np.int32)
    after = np.where(action == 1, place + 1, 0)
    return Transitions(
        np.eye(3, dtype=np.float32)[place],
        action,
        np.where(after == 2, 1.0, -0.1).astype(np.float32),
        np.where(after == 2, 0.0, 1.0).astype(np.float32),
        np.eye(3, dtype=np.float32)[after],
        np.tile(np.array(next_action, np.int32), (256, 1)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "value"),
    [
        pytest.param([1], -0.1 + GAMMA, marks=pytest.mark.slow),
        # It never arrives.
        pytest.param([0], -0.1 / (1 - GAMMA), marks=pytest.mark.slow),
        # Both with the same probability: v0 = 0.5 (-0.1 + g v0) + 0.5 (-0.1 + g v1), and likewise v1.
        ([0, 1], None),
    ],
)
def test_the_value_of_a_policy_that_did_not_act(actions, value):
    if value is None:
        equations = np.array([[1 - 0.5 * GAMMA, -0.5 * GAMMA], [-0.5 * GAMMA, 1.0]])
        value = np.linalg.solve(equations, [-0.1, 0.5 * (-0.1 + 1.0)])[0]
    first = np.eye(3, dtype=np.float32)[[0, 0]]
    found = fitted_q_evaluation(SPEC, transitions(actions), first, np.array([actions] * 2), GAMMA, SETTINGS, seed=1)
    assert found.value == pytest.approx(value, abs=0.03)


def test_rewards_and_discount_bound_the_values():
    assert value_range(np.array([-1.0, 0.5]), 0.75) == (-4.0, 2.0)
    assert value_range(np.array([1.0, 2.0]), 0.5) == (0.0, 4.0)
    assert value_range(np.array([1.0, 0.0]), 1.0) == (0.0, np.inf)


@pytest.mark.slow
def test_targets_stay_within_the_bounds(monkeypatch):
    monkeypatch.setattr(module, "value_range", lambda reward, discount: (-0.2, 0.4))
    first = np.eye(3, dtype=np.float32)[[0, 1]]
    found = fitted_q_evaluation(SPEC, transitions([1]), first, np.array([[1], [1]]), GAMMA, SETTINGS, seed=1)
    # Place 1 has the bound in place of 1; place 0 still learns from it.
    assert found.value == pytest.approx((-0.1 + GAMMA * 0.4 + 0.4) / 2, abs=0.03)
