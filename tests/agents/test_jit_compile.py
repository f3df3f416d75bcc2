"""Every agent's update compiled by XLA: the same numbers as without."""

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import SMALL_UPDATES
from update_on_replicas import begin, distribute, made, own_copy, random_sample

from callboard.agents.fast_function import compiled_by_xla


@pytest.fixture
def in_float64():
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx(before)


def change(name, by_xla):
    """What one update changes in the weights and in the statistics, each flat, and its metrics."""
    agent, spec, length = made(name)
    strategy = tf.distribute.get_strategy()
    with compiled_by_xla(by_xla):
        networks, learner, layout = begin(agent, spec, strategy, None)
    before = [own_copy(strategy, variable) for variable in networks.variables]
    metrics = learner.step(distribute(strategy, [[random_sample(layout, length)]])).metrics
    parts = {True: [], False: [np.zeros(0)]}
    for variable, old in zip(networks.variables, before, strict=True):
        parts[variable.trainable].append(own_copy(strategy, variable) - old)
    return [np.concatenate(part) for part in parts.values()], {key: float(value) for key, value in metrics.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_UPDATES)
def test_an_update_that_xla_compiles_is_the_same(in_float64, name):
    (plain, metrics), (compiled, same_metrics) = change(name, False), change(name, True)
    assert np.linalg.norm(plain[0]) > 1e-3
    for part, same in zip(plain, compiled, strict=True):
        assert np.linalg.norm(same - part) <= 1e-6 * np.linalg.norm(part)
    assert same_metrics == pytest.approx(metrics, rel=1e-6, abs=1e-9)
