"""Ape-X with distributions of values: its loss against loops over numbers, how it acts, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from small_worlds import ACTIONS, SPEC, layout_of

from callboard.agents.apex import Apex
from callboard.agents.learning.gradient_step import divided
from callboard.agents.learning.q_learning import SMALLEST_PRIORITY, QActions
from callboard.agents.learning.value_distributions import ValueDistribution
from callboard.data import ItemInfo, Record, Sample
from callboard.errors import CallboardError
from callboard.networks.heads.implicit_quantiles import ImplicitQuantiles
from callboard.networks.network import Inputs
from callboard.settings.nested_settings import from_values

STEPS, BATCH, ATOMS, LOW, HIGH = 2, 24, 5, -2.0, 3.0
SETTINGS = {"n_step": STEPS, "batch_size": BATCH, "atoms": ATOMS, "value_min": LOW, "value_max": HIGH, "discount": 0.9}


class Numbers:
    """A network with outputs for each observation, which is an index."""

    normalizer = None

    def __init__(self, seed: int, implicit: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.outputs = rng.normal(size=((STEPS + 1) * BATCH, ACTIONS, ATOMS))
        self.fractions = rng.random(size=((STEPS + 1) * BATCH, ATOMS))
        self.implicit = implicit

    def step(self, inputs: Any, state: Any, first: Any, training: bool = False) -> Any:
        outputs = tf.gather(tf.constant(self.outputs), inputs.observation)
        if self.implicit:
            return ImplicitQuantiles(outputs, tf.gather(tf.constant(self.fractions), inputs.observation)), state
        return outputs, state

    def regularization_loss(self) -> float:
        return 0.0


class Networks:
    def __init__(self, implicit: bool) -> None:
        self.online = Numbers(1, implicit)
        self.target = Numbers(2, implicit)
        self.actions = QActions(specs.DiscreteArray(ACTIONS))
        self.value_range = None

    def masked(self, q: Any, observation: Any) -> Any:
        return q


def random_windows(seed: int) -> Sample:
    """Windows that terminate, end at a time limit, or lost an observation."""
    rng = np.random.default_rng(seed)
    last = rng.random((STEPS + 1, BATCH)) < 0.2
    terminated = ~last[:-1] & (rng.random((STEPS, BATCH)) < 0.2)
    cut_off = rng.random((STEPS, BATCH)) < 0.1
    return Sample(
        Record(
            observation=np.arange((STEPS + 1) * BATCH).reshape(STEPS + 1, BATCH),
            first=np.concatenate([np.zeros((1, BATCH), bool), terminated | cut_off | last[:-1]]),
            last=last,
            action=rng.integers(ACTIONS, size=(STEPS, BATCH)).astype(np.int32),
            reward=rng.normal(size=(STEPS, BATCH)),
            discount=np.where(terminated, 0.0, 1.0),
            extras=(),
            version=np.zeros((STEPS, BATCH, 2), np.int32),
        ),
        (),
        ItemInfo(np.arange(BATCH), np.zeros(BATCH, int), rng.uniform(0.01, 0.1, BATCH), np.full(BATCH, 50)),
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def categorical(taken: np.ndarray, later: np.ndarray, returns: float, discount: float) -> float:
    """Algorithm 1 of Bellemare et al. 2017."""
    gap, target = (HIGH - LOW) / (ATOMS - 1), np.zeros(ATOMS)
    for j, probability in enumerate(softmax(later)):
        at = (min(HIGH, max(LOW, returns + discount * (LOW + j * gap))) - LOW) / gap
        lower = min(int(at), ATOMS - 2)
        target[lower] += probability * (lower + 1 - at)
        target[lower + 1] += probability * (at - lower)
    return -float(target @ np.log(softmax(taken)))


def at_the_ends(later: np.ndarray, returns: float, discount: float) -> float:
    """The probability that the target of `categorical` has at the two ends of the support."""
    gap, ends = (HIGH - LOW) / (ATOMS - 1), 0.0
    for j, probability in enumerate(softmax(later)):
        value = min(HIGH, max(LOW, returns + discount * (LOW + j * gap)))
        ends += probability * max(0.0, 1 - (value - LOW) / gap, 1 - (HIGH - value) / gap)
    return ends


def quantile(taken: np.ndarray, later: np.ndarray, returns: float, discount: float) -> float:
    """Algorithm 1 of Dabney et al. 2018."""
    total = 0.0
    for i, j in np.ndindex(ATOMS, ATOMS):
        u = returns + discount * later[j] - taken[i]
        size = u**2 / 2 if abs(u) <= 1 else abs(u) - 0.5
        total += abs((2 * i + 1) / (2 * ATOMS) - (u < 0)) * size / ATOMS
    return total


def implicit(taken: np.ndarray, later: np.ndarray, returns: float, discount: float, fractions: np.ndarray) -> float:
    """Equation (3) of "Implicit quantile networks", with the other network's sampled fractions."""
    total = 0.0
    for i, j in np.ndindex(ATOMS, ATOMS):
        u = returns + discount * later[j] - taken[i]
        size = u**2 / 2 if abs(u) <= 1 else abs(u) - 0.5
        total += abs(fractions[i] - (u < 0)) * size / ATOMS
    return total


LOSSES: dict[str, Any] = {"categorical": categorical, "quantile": quantile, "implicit": implicit}


@pytest.mark.parametrize("kind", LOSSES)
def test_the_loss_is_that_of_the_paper_with_double_q_learning_and_importance_weights(kind):
    agent = from_values(Apex, {**SETTINGS, "distribution": kind})
    sample = random_windows(0)
    record, support = sample.record, np.linspace(LOW, HIGH, ATOMS)
    networks: Any = Networks(kind == "implicit")
    loss, metrics, priorities = agent.loss(networks, sample)

    def mean(outputs: np.ndarray) -> float:
        return float(softmax(outputs) @ support if kind == "categorical" else outputs.mean())

    weights = (50 * sample.info.probability) ** -0.4
    weights /= weights.max()
    total, errors, ends = 0.0, np.zeros(BATCH), []
    for b in range(BATCH):
        returns, discount, n = 0.0, 1.0, 0
        for t in range(STEPS):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            if discount == 0 or record.last[t, b] or lost:
                break
            returns, n = returns + discount * record.reward[t, b], t + 1
            discount *= 0.9 * record.discount[t, b]
        if n == 0:
            continue
        at = record.observation[n, b]
        best = int(np.argmax([mean(networks.online.outputs[at, a]) for a in range(ACTIONS)]))
        taken = networks.online.outputs[record.observation[0, b], record.action[0, b]]
        later = networks.target.outputs[at, best]
        fractions = (networks.online.fractions[record.observation[0, b]],) if kind == "implicit" else ()
        total += weights[b] * LOSSES[kind](taken, later, returns, discount, *fractions)
        errors[b] = abs(returns + discount * mean(later) - mean(taken))
        ends.append(at_the_ends(later, returns, discount))
    np.testing.assert_allclose(loss, total / BATCH, rtol=1e-9)
    if kind == "categorical":
        np.testing.assert_allclose(divided(metrics)["support_ends"], np.mean(ends), rtol=1e-9)
    np.testing.assert_allclose(divided(metrics)["td_error"], errors[errors > 0].mean(), rtol=1e-9)
    np.testing.assert_allclose(priorities, errors + SMALLEST_PRIORITY, rtol=1e-9)
    assert (errors == 0).any() and (record.discount == 0).any()


@pytest.mark.parametrize("kind, dueling", [("categorical", True), ("quantile", False)])
def test_the_network_has_numbers_for_each_action(kind, dueling):
    agent = from_values(
        Apex, {**SETTINGS, "distribution": kind, "network.hidden_sizes": (4,), "network.dueling": dueling}
    )
    networks = agent.make_networks(layout_of(SPEC))
    network = networks.online
    observation = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    outputs, _ = network.step(Inputs(observation), (), np.zeros(6, bool))
    assert outputs.shape == (6, ACTIONS, ATOMS) and agent.values.mean(outputs).shape == (6, ACTIONS)


def test_values_are_means():
    outputs = tf.constant([[[0.0, 0.0, np.log(2.0)], [1.0, 2.0, 6.0]]], tf.float64)
    categorical_values = ValueDistribution("categorical", 3, -1.0, 1.0, None).mean(outputs)[0, 0]
    np.testing.assert_allclose(categorical_values, (-0.25 + 0.5))
    np.testing.assert_allclose(ValueDistribution("quantile", 3, 0.0, 0.0, 1.0).mean(outputs)[0, 1], 3.0)
    values = tf.constant([[1.0, 2.0]])
    none = ValueDistribution("none", 51, 0.0, 0.0, 1.0)
    assert none.mean(values) is values and none.outputs == {}
    implicit = ValueDistribution("implicit", 3, 0.0, 0.0, 1.0)
    np.testing.assert_allclose(implicit.mean(ImplicitQuantiles(outputs, outputs[:, 0]))[0, 1], 3.0)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"distribution": "categorical", "atoms": 1}, "set agent.atoms to at least 2, not 1"),
        ({"distribution": "quantile", "atoms": 1}, "set agent.atoms to at least 2, not 1"),
        ({"noisy_sigma": 0.0}, "agent.noisy_sigma must be a number above 0, not 0.0"),
        (
            {"distribution": "categorical", "value_min": 20.0, "value_max": 10.0},
            "agent.value_min = 20 must be below agent.value_max = 10",
        ),
    ],
)
def test_distributions_that_cannot_work_are_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(Apex, settings).check(layout_of(SPEC))
    assert "\n" not in str(caught.value)


def test_without_a_distribution_its_settings_do_not_matter():
    without = {"value_min": 1.0, "value_max": 0.0}
    from_values(Apex, {**without, "distribution": "none", "atoms": 1}).check(layout_of(SPEC))
    from_values(Apex, {**without, "distribution": "quantile", "atoms": 2}).check(layout_of(SPEC))
