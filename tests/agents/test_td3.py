"""TD3: its updates against a loop over numbers, the delay of its policy, and what it refuses."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from linear_updates import (
    actor_and_targets,
    adam_that_shows_lengths,
    assert_first_step_of_adam,
    assert_targets_begin_as_given,
    is_valid,
    random_windows,
    spread,
    weights_after_updates,
)
from small_worlds import layout_of

from callboard.agents.td3 import TD3
from callboard.data import Sample
from callboard.errors import CallboardError
from callboard.networks import stateless_random as noise
from callboard.networks.random_streams import Stream
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, 2.0, 6.0))
LINEAR = from_values(
    TD3,
    {
        "batch_size": 6,
        "normalize_rewards": False,
        "discount": 0.9,
        "target_noise": 0.4,
        "policy_delay": 2,
        "target_update_rate": 0.3,
        **adam_that_shows_lengths(actor=0.1, critic=0.2),
    },
)


def sample_of(step: int) -> Sample:
    return random_windows(step, LINEAR.batch_size, 1, lambda rng, shape: rng.uniform(2.0, 6.0, (*shape, 1)))


@pytest.fixture(scope="module")
def updates():
    """Weights before and after each of three updates of linear networks, in float64."""
    return weights_after_updates(LINEAR, layout_of(SPEC), list(map(sample_of, range(3))), actor_and_targets, spread)


def linear_losses(part: str, weights: np.ndarray, before: dict[str, np.ndarray], step: int) -> float:
    """The loss of one part of linear networks as a function of its weights, transition by transition."""
    now = before | {part: weights}
    record, size = sample_of(step).record, LINEAR.batch_size
    normal = noise.standard_normal(np.array([1, step]), Stream.TARGET_ACTION, np.arange(size), (1,), tf.float64).numpy()

    def q(critics: np.ndarray, x: np.ndarray, unit: float) -> list[float]:
        # Each critic: a weight for every component of the observation, one for the action, and a bias.
        return [float(x @ w[:3] + unit * w[3] + w[4]) for w in np.split(critics, 2)]

    def act(policy: np.ndarray, x: np.ndarray) -> float:
        return float(np.tanh(x @ policy[:3] + policy[3]))

    total = 0.0
    for b in range(size):
        if not is_valid(record, 0, b):
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


@pytest.mark.slow("daily")
@pytest.mark.parametrize("part, rate", [("critic", 0.2), ("actor", 0.1)])
def test_the_first_update_of_linear_networks_is_that_of_the_paper(updates, part, rate):
    before, after, *_ = updates
    loss = functools.partial(linear_losses, part, before=before, step=0)
    assert_first_step_of_adam(before[part], after[part], lambda weights: loss(weights=weights), rate)


@pytest.mark.slow("daily")
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
        ({"replay.size": 50, "replay.min_size": 50}, "smaller than a batch of 256"),
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
    assert_targets_begin_as_given(LINEAR, layout_of(SPEC))
