"""D4PG: its update against a loop over numbers, its target networks, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.d4pg import D4PG
from callboard.data import Record, Sample
from callboard.errors import CallboardError
from callboard.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, 2.0, 6.0))
STEPS, ATOMS, LOW, HIGH = 2, 4, -3.0, 3.0
# Adam with a large epsilon: its update shows how long a gradient was.
LINEAR = from_values(
    D4PG,
    {
        "n_step": STEPS,
        "batch_size": 8,
        "discount": 0.9,
        "atoms": ATOMS,
        "value_min": LOW,
        "value_max": HIGH,
        "target_update_period": 2,
        "network.hidden_sizes": (),
        "actor_optimizer.learning_rate": 0.1,
        "critic_optimizer.learning_rate": 0.2,
        "actor_optimizer.epsilon": 1.0,
        "critic_optimizer.epsilon": 1.0,
    },
)


def random_sample(seed: int, batch: int) -> Sample:
    """Windows in which some transitions terminate, end at a time limit, or lost an observation; half have none."""
    rng = np.random.default_rng(seed)
    half = np.arange(batch) < batch // 2
    last = half & (rng.random((STEPS + 1, batch)) < 0.3)
    terminated = half & ~last[:-1] & (rng.random((STEPS, batch)) < 0.3)
    cut_off = half & (rng.random((STEPS, batch)) < 0.2)
    return Sample(
        record=Record(
            observation=rng.normal(size=(STEPS + 1, batch, 3)).astype(np.float32),
            first=np.concatenate([np.zeros((1, batch), bool), terminated | cut_off | last[:-1]]),
            last=last,
            action=rng.uniform(2.0, 6.0, (STEPS, batch, 1)),
            reward=rng.normal(size=(STEPS, batch)).astype(np.float32),
            discount=np.where(terminated, 0.0, 1.0).astype(np.float32),
            extras=(),
            version=np.zeros((STEPS, batch, 2), np.int32),
        ),
        state=(),
    )


def weights_of(networks: Any) -> dict[str, np.ndarray]:
    parts = networks.actor_critic
    modules = {
        "critic": parts.critic,
        "actor": parts.policy,
        "target critic": parts.target_critic,
        "target actor": parts.target_policy,
    }
    return {name: np.concatenate([one.numpy().ravel() for one in part.variables]) for name, part in modules.items()}


@pytest.fixture(scope="module")
def updates():
    """Weights before and after each of two updates of linear networks, in float64."""
    tf.keras.backend.set_floatx("float64")
    try:
        layout = layout_of(SPEC)
        networks = LINEAR.make_networks(layout)
        learner = LINEAR.make_learner(networks, tf.distribute.get_strategy(), layout)
        # Targets of their own, so that it shows where each is used, and a policy with a slope.
        rng = np.random.default_rng(5)
        for variable in networks.actor_critic.variables:
            variable.assign(0.5 * rng.normal(size=variable.shape))
        weights = [weights_of(networks)]
        for step in range(2):
            learner.step(iter([random_sample(step, LINEAR.batch_size)]))
            weights.append(weights_of(networks))
        assert networks.learning.numpy()
        return weights
    finally:
        tf.keras.backend.set_floatx("float32")


def linear_losses(part: str, weights: np.ndarray, before: dict[str, np.ndarray]) -> float:
    """The loss of one part of linear networks as a function of its weights, window by window."""
    now = before | {part: weights}
    record, values = random_sample(0, LINEAR.batch_size).record, np.linspace(LOW, HIGH, ATOMS)
    gap = values[1] - values[0]

    def log_probabilities(critic: np.ndarray, x: np.ndarray, unit: float) -> np.ndarray:
        logits = np.concatenate([x, [unit]]) @ critic[: 4 * ATOMS].reshape(4, ATOMS) + critic[4 * ATOMS :]
        return logits - np.log(np.exp(logits).sum())

    def act(policy: np.ndarray, x: np.ndarray) -> float:
        return float(np.tanh(x @ policy[:3] + policy[3]))

    total = 0.0
    for b in range(LINEAR.batch_size):
        returns, discount, n = 0.0, 1.0, 0
        for t in range(STEPS):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            if discount == 0 or record.last[t, b] or lost:
                break
            returns += discount * record.reward[t, b]
            discount *= LINEAR.discount * record.discount[t, b]
            n = t + 1
        if n == 0:
            continue
        x_0, x_n = record.observation[0, b].astype(np.float64), record.observation[n, b].astype(np.float64)
        if part == "actor":
            total -= np.exp(log_probabilities(now["critic"], x_0, act(now["actor"], x_0))) @ values
            continue
        p = np.exp(log_probabilities(now["target critic"], x_n, act(now["target actor"], x_n)))
        taken = log_probabilities(now["critic"], x_0, (record.action[0, b, 0] - 4.0) / 2.0)
        for j in range(ATOMS):
            at = (min(HIGH, max(LOW, returns + discount * values[j])) - LOW) / gap
            lower = min(int(at), ATOMS - 2)
            total -= p[j] * ((lower + 1 - at) * taken[lower] + (at - lower) * taken[lower + 1])
    return total / LINEAR.batch_size


def numerical_gradient(function: Any, at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    offsets = step * np.eye(len(at))
    return np.array([(function(at + offset) - function(at - offset)) / (2 * step) for offset in offsets])


@pytest.mark.parametrize("part, rate", [("critic", 0.2), ("actor", 0.1)])
def test_the_first_update_of_linear_networks_is_that_of_the_paper(updates, part, rate):
    before, after, _ = updates
    gradient = numerical_gradient(lambda weights: linear_losses(part, weights, before), before[part])
    # Adam's first step (Kingma and Ba 2015), with epsilon before the bias is corrected, as at section 2's end.
    shrink = np.sqrt(1 - 0.999)
    step = -rate * shrink * gradient / (shrink * np.abs(gradient) + 1.0)
    assert np.linalg.norm(step) > 1e-4
    np.testing.assert_allclose(np.subtract(after[part], before[part]), step, rtol=1e-5, atol=1e-9)


def test_targets_are_copied_every_other_step(updates):
    for part in ("critic", "actor"):
        np.testing.assert_array_equal(updates[1][f"target {part}"], updates[0][f"target {part}"])
        np.testing.assert_array_equal(updates[2][f"target {part}"], updates[2][part])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"atoms": 1}, "set agent.atoms to at least 2, not 1"),
        ({"value_max": -200.0}, "agent.value_min = -150 must be below agent.value_max = -200"),
        ({"network.torso": "resnet8"}, "d4pg does not train the statistics of batch normalization"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(D4PG, settings).check(layout_of(SPEC))
    assert "\n" not in str(caught.value)
