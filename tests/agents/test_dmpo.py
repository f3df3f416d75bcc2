"""DMPO: its update against a loop over numbers, how it acts, and what it refuses."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from linear_updates import (
    actor_and_targets,
    adam_that_shows_lengths,
    assert_first_step_of_adam,
    assert_targets_begin_as_given,
    in_float64,
    is_valid,
    random_windows,
    spread,
    weights_after_updates,
)
from small_worlds import layout_of, weights_of

from callboard.agents.dmpo import DMPO
from callboard.agents.learning.gradient_step import divided
from callboard.agents.policies.acting import CompiledPolicy
from callboard.data import Sample, Timestep
from callboard.errors import CallboardError
from callboard.networks import stateless_random as noise
from callboard.networks.random_streams import Stream
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, 2.0, 6.0))
STEPS, ATOMS, LOW, HIGH, NUMBER = 2, 4, -3.0, 3.0, 3
LINEAR = from_values(
    DMPO,
    {
        "normalize_rewards": False,
        "n_step": STEPS,
        "batch_size": 8,
        "discount": 0.9,
        "atoms": ATOMS,
        "value_min": LOW,
        "value_max": HIGH,
        "action_samples": NUMBER,
        "target_update_period": 2,
        "initial_temperature": 0.3,
        "initial_alpha_mean": 0.5,
        "initial_alpha_stddev": -0.5,
        "epsilon": 0.05,
        "epsilon_mean": 0.02,
        "epsilon_stddev": 0.03,
        "epsilon_penalty": 0.04,
        **adam_that_shows_lengths(actor=0.1, critic=0.2, dual=0.3),
        **{f"{part}_optimizer.max_gradient_norm": None for part in ("actor", "critic", "dual")},
    },
)
PART = dict[str, np.ndarray]


def sample_of(step: int) -> Sample:
    return random_windows(step, LINEAR.batch_size, STEPS, lambda rng, shape: rng.uniform(2.0, 6.0, (*shape, 1)))


def parts(networks: Any) -> dict[str, tf.Module]:
    return {**actor_and_targets(networks), "dual": networks.duals}


@pytest.fixture(scope="module")
def updates():
    """Weights before and after each of two updates of linear networks, in float64."""
    return weights_after_updates(LINEAR, layout_of(SPEC), list(map(sample_of, range(2))), parts, spread)


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x)) + 1e-8


def act(policy: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of a linear policy."""
    mean, raw = x @ policy[:6].reshape(3, 2) + policy[6:]
    return mean, 0.7 / np.log(2) * np.log1p(np.exp(raw)) + 1e-6


def log_probabilities(critic: np.ndarray, x: np.ndarray, unit: float) -> np.ndarray:
    logits = np.concatenate([x, [unit]]) @ critic[: 4 * ATOMS].reshape(4, ATOMS) + critic[4 * ATOMS :]
    return logits - np.log(np.exp(logits).sum())


def numbers_of_windows(now: PART) -> list[dict[str, float]]:
    """The losses and metrics of each valid window as linear networks of these weights give them."""
    record, values = sample_of(0).record, np.linspace(LOW, HIGH, ATOMS)
    normal = noise.standard_normal(
        np.array([1, 0]), Stream.TARGET_ACTION, np.arange(LINEAR.batch_size), (NUMBER, 1), tf.float64
    ).numpy()
    windows = []
    for b in range(LINEAR.batch_size):
        returns, discount, n = 0.0, 1.0, 0
        for t in range(STEPS):
            if discount == 0 or not is_valid(record, t, b):
                break
            returns, n = returns + discount * record.reward[t, b], t + 1
            discount *= LINEAR.discount * record.discount[t, b]
        if n == 0:
            continue
        x_0, x_t = (record.observation[t, b].astype(np.float64) for t in (0, n if discount else 0))
        mean, std = act(now["target actor"], x_t)
        actions = [mean + std * normal[b, i, 0] for i in range(NUMBER)]
        p = [np.exp(log_probabilities(now["target critic"], x_t, max(-1.0, min(1.0, a)))) for a in actions]
        sampled = [float(one @ values) for one in p]
        costs = [-abs(a - max(-1.0, min(1.0, a))) for a in actions]
        loss, ends = critic_loss(now, x_0, record.action[0, b, 0], returns, discount, np.mean(p, axis=0), values)
        windows.append(
            {"critic_loss": loss, "support_ends": ends, "value": sum(sampled) / NUMBER}
            | improvement(now, x_t, actions, sampled, costs)
        )
    return windows


def linear_losses(part: str, before: PART, weights: np.ndarray) -> float:
    """The loss of one part of linear networks as a function of its weights, window by window."""
    windows = numbers_of_windows(before | {part: weights})
    return sum(window[f"{part}_loss"] for window in windows) / LINEAR.batch_size


def critic_loss(
    now: PART, x: Any, action: float, returns: float, discount: float, p: Any, values: Any
) -> tuple[float, float]:
    """The loss, and the probability of the target's two ends."""
    taken, loss, ends = log_probabilities(now["critic"], x, (action - 4.0) / 2.0), 0.0, 0.0
    for j in range(ATOMS):
        at = (min(HIGH, max(LOW, returns + discount * values[j])) - LOW) / (values[1] - values[0])
        lower = min(int(at), ATOMS - 2)
        loss -= p[j] * ((lower + 1 - at) * taken[lower] + (at - lower) * taken[lower + 1])
        ends += p[j] * max(0.0, 1 - at, at - (ATOMS - 2))
    return loss, ends


def improvement(now: PART, x: Any, actions: list, values: list, costs: list) -> dict[str, float]:
    """The losses of the policy and of the dual variables, and their metrics, at one observation."""
    duals = dict(zip(("alpha_mean", "alpha_stddev", "penalty_temperature", "temperature"), now["dual"], strict=True))
    weights, dual_loss = np.zeros(NUMBER), 0.0
    for scores, name, epsilon in ((values, "temperature", 0.05), (costs, "penalty_temperature", 0.04)):
        eta = softplus(duals[name])
        exponentials = np.exp(np.array(scores) / eta)
        weights += exponentials / exponentials.sum()
        dual_loss += eta * (epsilon + np.log(exponentials.mean()))
    (mean, std), (target_mean, target_std) = act(now["actor"], x), act(now["target actor"], x)
    kl_mean = (target_mean - mean) ** 2 / (2 * target_std**2)
    kl_stddev = np.log(std / target_std) + target_std**2 / (2 * std**2) - 0.5
    alpha_mean, alpha_stddev = softplus(duals["alpha_mean"]), softplus(duals["alpha_stddev"])
    dual_loss += alpha_mean * (0.02 - kl_mean) + alpha_stddev * (0.03 - kl_stddev)
    actor_loss = alpha_mean * kl_mean + alpha_stddev * kl_stddev
    for weight, action in zip(weights, actions, strict=True):
        actor_loss += weight * ((action - mean) ** 2 / (2 * target_std**2) + np.log(target_std))
        actor_loss += weight * ((action - target_mean) ** 2 / (2 * std**2) + np.log(std))
    return {
        "actor_loss": actor_loss,
        "dual_loss": dual_loss,
        "kl_mean": kl_mean,
        "kl_stddev": kl_stddev,
        "entropy": 0.5 * np.log(2 * np.pi * np.e) + np.log(std),
        "temperature": softplus(duals["temperature"]),
    }


@pytest.mark.usefixtures("eagerly")
def test_metrics_are_means_over_the_valid_windows():
    with in_float64():
        networks = LINEAR.make_networks(layout_of(SPEC))
        spread(networks)
        metrics = divided(LINEAR.loss(networks, sample_of(0), tf.constant([1, 0], tf.int64)).metrics)
    windows = numbers_of_windows({name: weights_of(part) for name, part in parts(networks).items()})
    assert 0 < len(windows) < LINEAR.batch_size and set(windows[0]) <= set(metrics)
    for name in windows[0]:
        expected = np.mean([window[name] for window in windows])
        np.testing.assert_allclose(metrics[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("part, rate", [("critic", 0.2), ("actor", 0.1), ("dual", 0.3)])
def test_the_first_update_of_linear_networks_is_that_of_the_paper(updates, part, rate):
    before, after, _ = updates
    assert_first_step_of_adam(before[part], after[part], functools.partial(linear_losses, part, before), rate)


@pytest.mark.slow("daily")
def test_targets_are_copied_every_other_step(updates):
    for part in ("critic", "actor"):
        np.testing.assert_array_equal(updates[1][f"target {part}"], updates[0][f"target {part}"])
        np.testing.assert_array_equal(updates[2][f"target {part}"], updates[2][part])


def test_targets_begin_as_the_networks_that_the_learner_is_given():
    assert_targets_begin_as_given(LINEAR, layout_of(SPEC))


@pytest.mark.usefixtures("eagerly")
def test_actions_are_even_until_learning_begins_and_the_policys_then():
    networks = LINEAR.make_networks(layout_of(SPEC))
    for variable in networks.actor_critic.policy.variables:
        variable.assign(tf.zeros_like(variable))
    networks.actor_critic.policy.trainable_variables[-1].assign([0.5, 0.0])
    timestep = Timestep(np.zeros((4000, 3), np.float32), *[np.zeros(4000, np.float32)] * 2, *[np.zeros(4000, bool)] * 2)
    for learning, mode, center, spread_of_actions in (
        (False, "train", 4.0, 4 / np.sqrt(12)),
        (False, "sample", 4.65, 1.0),
        (True, "train", 4.65, 1.0),
        (True, "evaluate", 5.0, 0.0),
    ):
        networks.learning.assign(learning)
        policy = CompiledPolicy(LINEAR.make_policy(networks, mode), layout_of(SPEC), np.arange(4000), seed=1)
        action, _ = policy(timestep)
        assert ((action >= 2) & (action <= 6)).all()
        np.testing.assert_allclose([action.mean(), action.std()], [center, spread_of_actions], atol=0.2)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"atoms": 1}, "set agent.atoms to at least 2, not 1"),
        ({"value_min": -150.0, "value_max": -200.0}, "agent.value_min = -150 must be below agent.value_max = -200"),
        ({"network.torso": "resnet8"}, "dmpo does not train the statistics of batch normalization"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(DMPO, settings).check(layout_of(SPEC))
    assert "\n" not in str(caught.value)
