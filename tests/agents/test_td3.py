"""TD3: its updates against a loop over numbers, the delay of its policy, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.td3 import TD3
from callboard.data import Record, Sample
from callboard.errors import CallboardError
from callboard.nested_settings import from_values
from callboard.networks import stateless_random as noise
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, 2.0, 6.0))
# Adam with a large epsilon: its update shows how long a gradient was.
LINEAR = from_values(
    TD3,
    {
        "batch_size": 6,
        "discount": 0.9,
        "target_noise": 0.4,
        "policy_delay": 2,
        "target_update_rate": 0.3,
        "network.hidden_sizes": (),
        "actor_optimizer.learning_rate": 0.1,
        "critic_optimizer.learning_rate": 0.2,
        "actor_optimizer.epsilon": 1.0,
        "critic_optimizer.epsilon": 1.0,
    },
)


def random_sample(seed: int, batch: int) -> Sample:
    """Transitions of which some terminate, some end at a time limit and some are not valid; the second half all are."""
    rng = np.random.default_rng(seed)
    half = np.arange(batch) < batch // 2
    ignored = half & (rng.random(batch) < 0.4)
    cut_off = half & (rng.random(batch) < 0.4)
    terminated = ~ignored & (rng.random(batch) < 0.3)
    return Sample(
        record=Record(
            observation=rng.normal(size=(2, batch, 3)).astype(np.float32),
            first=np.stack([np.zeros(batch, bool), cut_off | terminated]),
            last=np.stack([ignored, rng.random(batch) < 0.2]),
            action=rng.uniform(2.0, 6.0, (1, batch, 1)),
            reward=rng.normal(size=(1, batch)).astype(np.float32),
            discount=np.where(terminated, 0.0, 1.0).astype(np.float32)[np.newaxis],
            extras=(),
            version=rng.integers(50, size=(1, batch, 2)).astype(np.int32),
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
    """Weights before and after two updates of linear networks, in float64."""
    tf.keras.backend.set_floatx("float64")
    try:
        layout = layout_of(SPEC)
        networks = LINEAR.make_networks(layout)
        learner = LINEAR.make_learner(networks, tf.distribute.get_strategy(), layout)
        # Targets of their own, so that it shows where each is used, and a policy with a slope.
        rng = np.random.default_rng(5)
        for variable in networks.actor_critic.variables:
            variable.assign(0.5 * rng.normal(size=variable.shape))
        assert not networks.learning.numpy()
        weights = [weights_of(networks)]
        for step in range(3):
            update = learner.step(iter([random_sample(step, LINEAR.batch_size)]))
            weights.append(weights_of(networks))
            assert {"actor_gradient_norm", "critic_gradient_norm"} <= update.metrics.keys()
        assert networks.learning.numpy()
        return weights
    finally:
        tf.keras.backend.set_floatx("float32")


def linear_losses(part: str, weights: np.ndarray, before: dict[str, np.ndarray], step: int) -> float:
    """The loss of one part of linear networks as a function of its weights, transition by transition."""
    now = before | {part: weights}
    record, size = random_sample(step, LINEAR.batch_size).record, LINEAR.batch_size
    normal = noise.standard_normal(np.array([1, step]), np.arange(size), (1,), tf.float64).numpy()

    def q(critics: np.ndarray, x: np.ndarray, unit: float) -> list[float]:
        # Each critic: a weight for every component of the observation, one for the action, and a bias.
        return [float(x @ w[:3] + unit * w[3] + w[4]) for w in np.split(critics, 2)]

    def act(policy: np.ndarray, x: np.ndarray) -> float:
        return float(np.tanh(x @ policy[:3] + policy[3]))

    total = 0.0
    for b in range(size):
        lost = record.first[1, b] and record.discount[0, b] != 0
        if record.last[0, b] or lost:
            continue
        x, x_next = record.observation[:, b].astype(np.float64)
        if part == "actor":
            total -= q(now["critic"], x, act(now["actor"], x))[0]
            continue
        shift = max(-LINEAR.target_noise_clip, min(LINEAR.target_noise_clip, LINEAR.target_noise * normal[b, 0]))
        unit_next = max(-1.0, min(1.0, act(now["target actor"], x_next) + shift))
        value = min(q(now["target critic"], x_next, unit_next))
        target = record.reward[0, b] + LINEAR.discount * record.discount[0, b] * value
        taken = (record.action[0, b, 0] - 4.0) / 2.0
        total += sum((one - target) ** 2 / 2 for one in q(now["critic"], x, taken))
    return total / size


def numerical_gradient(function: Any, at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    offsets = step * np.eye(len(at))
    return np.array([(function(at + offset) - function(at - offset)) / (2 * step) for offset in offsets])


@pytest.mark.parametrize("part, rate", [("critic", 0.2), ("actor", 0.1)])
def test_the_first_update_of_linear_networks_is_that_of_the_paper(updates, part, rate):
    before, after, *_ = updates
    gradient = numerical_gradient(lambda weights: linear_losses(part, weights, before, 0), before[part])
    # Adam's first step (Kingma and Ba 2015), with epsilon before the bias is corrected, as at section 2's end.
    shrink = np.sqrt(1 - 0.999)
    step = -rate * shrink * gradient / (shrink * np.abs(gradient) + 1.0)
    assert np.linalg.norm(step) > 1e-4
    np.testing.assert_allclose(np.subtract(after[part], before[part]), step, rtol=1e-5, atol=1e-10)


def test_policy_and_targets_move_at_every_other_step_and_the_critics_at_all(updates):
    for step, (before, after) in enumerate(zip(updates[:-1], updates[1:], strict=True)):
        assert not np.array_equal(before["critic"], after["critic"])
        assert np.array_equal(before["actor"], after["actor"]) == (step == 1)
        for part in ("critic", "actor"):
            old, rate = before[f"target {part}"], 0.0 if step == 1 else 0.3
            np.testing.assert_allclose(after[f"target {part}"], (1 - rate) * old + rate * after[part], rtol=1e-9)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"policy_delay": 0}, "agent.policy_delay must be a whole number of at least 1, not 0"),
        ({"replay.size": 50, "replay.min_size": 50}, "smaller than a batch of 100"),
        ({"network.torso": "resnet8"}, "td3 does not train the statistics of batch normalization"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(TD3, settings).check(layout_of(SPEC))
    assert "\n" not in str(caught.value)


def test_discrete_actions_are_refused():
    with pytest.raises(CallboardError, match="td3 has a deterministic policy"):
        TD3().check(layout_of(SPEC._replace(action=dm_specs.DiscreteArray(3))))


def test_targets_begin_as_the_networks_that_the_learner_is_given():
    networks = LINEAR.make_networks(layout_of(SPEC))
    for variable in (*networks.actor_critic.policy.variables, *networks.actor_critic.critic.variables):
        variable.assign(tf.ones_like(variable))
    LINEAR.make_learner(networks, tf.distribute.get_strategy(), layout_of(SPEC))
    assert (weights_of(networks)["target critic"] == 1).all() and (weights_of(networks)["target actor"] == 1).all()
