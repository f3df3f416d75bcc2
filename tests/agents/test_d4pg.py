"""D4PG: its update against a loop over numbers, its target networks, and what it refuses."""

import functools

import numpy as np
import pytest
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

from callboard.agents.d4pg import D4PG
from callboard.agents.learning.gradient_step import divided
from callboard.data import Sample
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, 2.0, 6.0))
STEPS, ATOMS, LOW, HIGH = 2, 4, -3.0, 3.0
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
        **adam_that_shows_lengths(actor=0.1, critic=0.2),
    },
)


def sample_of(step: int) -> Sample:
    return random_windows(step, LINEAR.batch_size, STEPS, lambda rng, shape: rng.uniform(2.0, 6.0, (*shape, 1)))


@pytest.fixture(scope="module")
def updates():
    """Weights before and after each of two updates of linear networks, in float64."""
    return weights_after_updates(LINEAR, layout_of(SPEC), list(map(sample_of, range(2))), actor_and_targets, spread)


def numbers_of_windows(now: dict[str, np.ndarray]) -> list[dict[str, float]]:
    """The losses and metrics of each valid window as linear networks of these weights give them."""
    record, values = sample_of(0).record, np.linspace(LOW, HIGH, ATOMS)
    gap = values[1] - values[0]

    def log_probabilities(critic: np.ndarray, x: np.ndarray, unit: float) -> np.ndarray:
        logits = np.concatenate([x, [unit]]) @ critic[: 4 * ATOMS].reshape(4, ATOMS) + critic[4 * ATOMS :]
        return logits - np.log(np.exp(logits).sum())

    def act(policy: np.ndarray, x: np.ndarray) -> float:
        return float(np.tanh(x @ policy[:3] + policy[3]))

    windows = []
    for b in range(LINEAR.batch_size):
        returns, discount, n = 0.0, 1.0, 0
        for t in range(STEPS):
            if discount == 0 or not is_valid(record, t, b):
                break
            returns += discount * record.reward[t, b]
            discount *= LINEAR.discount * record.discount[t, b]
            n = t + 1
        if n == 0:
            continue
        x_0, x_n = record.observation[0, b].astype(np.float64), record.observation[n, b].astype(np.float64)
        value = float(np.exp(log_probabilities(now["critic"], x_0, act(now["actor"], x_0))) @ values)
        p = np.exp(log_probabilities(now["target critic"], x_n, act(now["target actor"], x_n)))
        taken = log_probabilities(now["critic"], x_0, (record.action[0, b, 0] - 4.0) / 2.0)
        critic_loss, ends = 0.0, 0.0
        for j in range(ATOMS):
            at = (min(HIGH, max(LOW, returns + discount * values[j])) - LOW) / gap
            lower = min(int(at), ATOMS - 2)
            critic_loss -= p[j] * ((lower + 1 - at) * taken[lower] + (at - lower) * taken[lower + 1])
            ends += p[j] * max(0.0, 1 - at, at - (ATOMS - 2))
        windows.append({"critic_loss": critic_loss, "actor_loss": -value, "value": value, "support_ends": ends})
    return windows


def linear_losses(part: str, weights: np.ndarray, before: dict[str, np.ndarray]) -> float:
    """The loss of one part of linear networks as a function of its weights, window by window."""
    windows = numbers_of_windows(before | {part: weights})
    return sum(window[f"{part}_loss"] for window in windows) / LINEAR.batch_size


@pytest.mark.usefixtures("eagerly")
def test_metrics_are_means_over_the_valid_windows():
    with in_float64():
        networks = LINEAR.make_networks(layout_of(SPEC))
        spread(networks)
        metrics = divided(LINEAR.loss(networks, sample_of(0)).metrics)
    windows = numbers_of_windows({name: weights_of(part) for name, part in actor_and_targets(networks).items()})
    assert 0 < len(windows) < LINEAR.batch_size and set(windows[0]) <= set(metrics)
    for name in windows[0]:
        expected = np.mean([window[name] for window in windows])
        np.testing.assert_allclose(metrics[name], expected, rtol=1e-6, err_msg=name)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("part, rate", [("critic", 0.2), ("actor", 0.1)])
def test_the_first_update_of_linear_networks_is_that_of_the_paper(updates, part, rate):
    before, after, _ = updates
    loss = functools.partial(linear_losses, part, before=before)
    assert_first_step_of_adam(before[part], after[part], lambda weights: loss(weights=weights), rate)


@pytest.mark.slow("daily")
def test_targets_are_copied_every_other_step(updates):
    for part in ("critic", "actor"):
        np.testing.assert_array_equal(updates[1][f"target {part}"], updates[0][f"target {part}"])
        np.testing.assert_array_equal(updates[2][f"target {part}"], updates[2][part])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"atoms": 1}, "set agent.atoms to at least 2, not 1"),
        ({"value_min": -150.0, "value_max": -200.0}, "agent.value_min = -150 must be below agent.value_max = -200"),
        ({"network.torso": "resnet8"}, "d4pg does not train the statistics of batch normalization"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(D4PG, settings).check(layout_of(SPEC))
    assert "\n" not in str(caught.value)


def test_targets_begin_as_the_networks_that_the_learner_is_given():
    assert_targets_begin_as_given(LINEAR, layout_of(SPEC))
