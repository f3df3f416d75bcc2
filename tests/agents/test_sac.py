"""SAC: what it refuses, how it acts, and its update against a loop over numbers."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from linear_updates import (
    adam_that_shows_lengths,
    assert_first_step_of_adam,
    is_valid,
    random_windows,
    weights_after_updates,
)
from small_worlds import layout_of

from callboard.agents.policies.sac_policy import SacNetworks
from callboard.agents.sac import Sac
from callboard.data import Record, Sample
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.networks import stateless_random as noise
from callboard.networks.random_streams import Stream
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

pytestmark = pytest.mark.usefixtures("eagerly")


def spec_of(shape=(2,), low: Any = -1.0, high: Any = 1.0, dtype: Any = np.float32) -> EnvironmentSpec:
    return EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray(shape, dtype, low, high))


# What is refused.


@pytest.mark.parametrize(
    "action, message",
    [
        (dm_specs.BoundedArray((2,), np.int32, 0, 4), r"sac needs actions that are .* action is int32\(2,\)"),
        (dm_specs.Array((2,), np.float32), r"discrete or floats with bounds"),
        ((dm_specs.DiscreteArray(3), dm_specs.BoundedArray((), np.float32, 0, np.inf)), r"float32\(\), has bounds"),
        (dm_specs.BoundedArray((2,), np.float32, -np.inf, np.inf), r"needs finite ones.* float32\(2,\), has bounds"),
        (dm_specs.BoundedArray((2,), np.float32, -1.0, [1.0, np.inf]), "has bounds that are infinite"),
    ],
)
def test_actions_that_it_cannot_take_are_refused_in_one_line(action, message):
    with pytest.raises(CallboardError, match=message) as caught:
        Sac().check(layout_of(spec_of()._replace(action=action)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"hold": 0}, "agent.hold must be a whole number of at least 1, not 0"),
        ({"network.hidden_sizes": (0,)}, "agent.network.hidden_sizes must be a list of whole numbers from 1 to 65,536"),
        ({"discount": 1.5}, "agent.discount must be a number from 0 to 1"),
        ({"target_update_rate": 0.0}, "agent.target_update_rate must be a number above 0"),
        ({"temperature": 0.0}, "agent.temperature must be a number above 0"),
        (
            {"critic_optimizer.learning_rate": float("nan")},
            "critic_optimizer.learning_rate must be a number above 0",
        ),
        ({"target_entropy": float("inf")}, "agent.target_entropy must be a number that is finite or null, not inf"),
        ({"replay.size": 100, "replay.min_size": 100}, "smaller than a batch of 256"),
        ({"replay.error_buffer": 10.0}, "an agent.replay.error_buffer of 10 cannot keep 256 samples per insert"),
        ({"replay.min_size": 100_000}, "learning would never begin"),
        ({"network.torso": "resnet8"}, "set agent.network.torso to impala or nature, not resnet8"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings, message):
    with pytest.raises(CallboardError, match=message):
        from_values(Sac, settings).check(layout_of(spec_of()))


def test_a_torso_of_the_users_own_may_have_any_name():
    from_values(Sac, {"network.torso": "callboard.networks.torsos:NatureTorso"}).check(layout_of(spec_of()))


def test_actions_with_bounds_of_any_kind_are_fine():
    for spec in (spec_of(), spec_of((), -3.0, -2.0, np.float64), spec_of((2, 3), [0.0, -1.0, -2.0], 5.0)):
        Sac().check(layout_of(spec))


DISCRETE_SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.DiscreteArray(4, np.int64))


# The update.

# The target of the entropy is the default for the discrete actions.
COMMON = {
    "normalize_rewards": False,
    "batch_size": 6,
    "target_update_rate": 0.3,
    "discount": 0.9,
    "temperature": 0.7,
    **adam_that_shows_lengths(actor=0.1, critic=0.2, temperature=0.3),
}
LINEAR = from_values(Sac, {**COMMON, "target_entropy": 0.4})
DISCRETE = from_values(Sac, COMMON)
LINEAR_SPEC = spec_of((1,), 2.0, 6.0)
ACTIONS = 4


def sample_for(spec: EnvironmentSpec) -> Sample:
    if spec is DISCRETE_SPEC:
        return random_windows(0, 6, 1, lambda rng, shape: rng.integers(ACTIONS, size=shape))
    return random_windows(0, 6, 1, lambda rng, shape: rng.uniform(2.0, 6.0, (*shape, 1)))


def parts_of(networks: SacNetworks) -> dict[str, Any]:
    learned = networks.actor_critic
    temperature = tf.Module()
    temperature.log_alpha = learned.log_alpha
    return {
        "critic": learned.critic,
        "actor": learned.policy,
        "temperature": temperature,
        "target": learned.target_critic,
    }


def loss_by_loops(part: str, agent: Sac, transition: Any, before: dict[str, np.ndarray], weights: np.ndarray) -> float:
    """The loss of one part of linear networks as a function of its weights, transition by transition."""
    now = before | {part: weights}
    spec = LINEAR_SPEC if agent is LINEAR else DISCRETE_SPEC
    record, alpha = sample_for(spec).record, np.exp(now["temperature"][0])
    observation = record.observation.astype(np.float64)
    valid = [b for b in range(agent.batch_size) if is_valid(record, 0, b)]
    return sum(transition(part, now, alpha, record, observation[:, b], b) for b in valid) / agent.batch_size


def continuous_loss(part: str, now: Any, alpha: float, record: Record, x: np.ndarray, b: int) -> float:
    streams = (Stream.LEARNED_ACTION, Stream.TARGET_ACTION)
    index = np.arange(LINEAR.batch_size)
    normal = [noise.standard_normal(np.array([1, 0]), stream, index, (1,), tf.float64).numpy() for stream in streams]

    def q(critics: np.ndarray, x: np.ndarray, unit: float) -> list[float]:
        # Each critic: a weight for every component of the observation, one for the action, and a bias.
        return [float(x @ w[:3] + unit * w[3] + w[4]) for w in np.split(critics, 2)]

    def act(x: np.ndarray, z: float) -> tuple[float, float]:
        kernel, bias = now["actor"][:6].reshape(3, 2), now["actor"][6:]
        mean, log_std = x @ kernel + bias
        unit = np.tanh(mean + np.exp(log_std) * z)
        log_density = -(z**2) / 2 - log_std - np.log(2 * np.pi) / 2
        return unit, log_density - np.log(1 - unit**2)

    unit, log_prob = act(x[0], normal[0][b, 0])
    if part == "critic":
        unit_next, log_prob_next = act(x[1], normal[1][b, 0])
        soft_value = min(q(now["target"], x[1], unit_next)) - alpha * log_prob_next
        target = record.reward[0, b] + LINEAR.discount * record.discount[0, b] * soft_value
        taken = (record.action[0, b, 0] - 4.0) / 2.0
        return sum((value - target) ** 2 / 2 for value in q(now["critic"], x[0], taken))
    if part == "actor":
        return alpha * log_prob - min(q(now["critic"], x[0], unit))
    return -alpha * (log_prob + 0.4)


def discrete_loss(part: str, now: Any, alpha: float, record: Record, x: np.ndarray, b: int) -> float:
    def outputs(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        return x @ weights[: 3 * ACTIONS].reshape(3, ACTIONS) + weights[3 * ACTIONS :]

    def lower(critics: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.minimum(*(outputs(w, x) for w in np.split(critics, 2)))

    def probabilities(x: np.ndarray) -> np.ndarray:
        logits = outputs(now["actor"], x)
        return np.exp(logits) / np.exp(logits).sum()

    p = probabilities(x[0])
    if part == "critic":
        later = probabilities(x[1])
        soft_value = sum(later[a] * (lower(now["target"], x[1])[a] - alpha * np.log(later[a])) for a in range(ACTIONS))
        target = record.reward[0, b] + DISCRETE.discount * record.discount[0, b] * soft_value
        action = record.action[0, b]
        return sum((outputs(w, x[0])[action] - target) ** 2 / 2 for w in np.split(now["critic"], 2))
    if part == "actor":
        return sum(p[a] * (alpha * np.log(p[a]) - lower(now["critic"], x[0])[a]) for a in range(ACTIONS))
    return -alpha * sum(p[a] * (np.log(p[a]) + 0.5 * np.log(ACTIONS)) for a in range(ACTIONS))


@pytest.fixture(scope="module", params=["continuous", "discrete"])
def update(request):
    """The agent, its loss of a transition, and the weights before and after one update of linear networks."""
    if request.param == "continuous":
        agent, spec, transition = LINEAR, LINEAR_SPEC, continuous_loss
    else:
        agent, spec, transition = DISCRETE, DISCRETE_SPEC, discrete_loss
    before, after = weights_after_updates(agent, layout_of(spec), [sample_for(spec)], parts_of)
    return functools.partial(loss_by_loops, agent=agent, transition=transition), before, after


@pytest.mark.slow("daily")
@pytest.mark.parametrize("part, rate", [("critic", 0.2), ("actor", 0.1), ("temperature", 0.3)])
def test_an_update_of_linear_networks_is_that_of_the_paper(update, part, rate):
    loss, before, after = update
    of_weights = functools.partial(loss, part, before=before)
    assert_first_step_of_adam(before[part], after[part], lambda weights: of_weights(weights=weights), rate)


@pytest.mark.slow("daily")
def test_target_critics_move_part_of_the_way_to_the_new_critics(update):
    _, before, after = update
    np.testing.assert_array_equal(before["target"], before["critic"])
    np.testing.assert_allclose(after["target"], 0.7 * before["target"] + 0.3 * after["critic"], rtol=1e-9)


@pytest.mark.slow("daily")
def test_policy_temperature_and_targets_may_move_at_every_other_step():
    agent = dataclasses.replace(LINEAR, policy_delay=2, target_update_period=2)
    before, *updates = weights_after_updates(agent, layout_of(LINEAR_SPEC), [sample_for(LINEAR_SPEC)] * 3, parts_of)
    for step, after in enumerate(updates):
        assert not np.array_equal(before["critic"], after["critic"])
        for part in ("actor", "temperature"):
            assert np.array_equal(before[part], after[part]) == (step == 1)
        rate = 0.0 if step == 1 else 0.3
        moved = (1 - rate) * before["target"] + rate * after["critic"]
        np.testing.assert_allclose(after["target"], moved, rtol=1e-9)
        before = after


def test_the_target_of_the_entropy_counts_legal_actions():
    spec = DISCRETE_SPEC._replace(
        observation={"action_mask": dm_specs.Array((ACTIONS,), np.int8), "observation": DISCRETE_SPEC.observation}
    )
    learned = DISCRETE.make_networks(layout_of(spec)).actor_critic
    sample = sample_for(DISCRETE_SPEC)
    mask = np.int8([[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    seen = {"action_mask": np.stack([mask] * 2), "observation": sample.record.observation}
    record = sample.record._replace(observation=seen, last=np.zeros((2, 6), bool), first=np.zeros((2, 6), bool))
    terms = DISCRETE.losses(learned, sample._replace(record=record), tf.constant([1, 0]), tf.zeros(6))
    wanted = 0.5 * np.log([4, 3, 2, 1, 4, 2])
    np.testing.assert_allclose(terms.temperature_loss, 0.7 * (terms.entropy - wanted), rtol=1e-4, atol=1e-6)


# A run.


@pytest.mark.slow
def test_a_short_run_learns_and_ends_well(tmp_path):
    experiment = Experiment(
        agent=from_values(
            Sac,
            {
                "network.hidden_sizes": (8,),
                "batch_size": 8,
                "replay.samples_per_insert": 8.0,
                "replay.min_size": 20,
                "hold": 2,
            },
        ),
        env="Pendulum-v1",
        actors=1,
        envs_per_actor=2,
        evaluator=False,
        max_steps=60,
        run_dir=tmp_path / "run",
    )
    assert run(experiment, launcher="inline").exit_code == 0
