"""Running normalization, in all agents but those of teams: policies act with the learner's statistics."""

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES
from slow_cases import slow_but
from update_on_replicas import CONTINUOUS, DISCRETE, begin, distribute, made, random_sample

from callboard.agents.learning.gradient_step import divided
from callboard.agents.registry import agent_class
from callboard.data import Timestep
from callboard.settings.nested_settings import from_values, with_values

CASES = [
    case
    for case in AGENT_CASES
    if any(small.settings["network.normalize_observations"] for small in case.small_updates.values())
]
FAST = ("sac",)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in FAST else pytest.mark.slow) for case in CASES],
)
def test_a_policy_acts_with_the_statistics_of_what_was_learned_from(case):
    agent, spec, length = made(next(iter(case.small_updates)))
    agent = with_values(agent, {"network.normalize_observations": True})
    strategy = tf.distribute.get_strategy()
    networks, learner, layout = begin(agent, spec, strategy, None)
    sample = random_sample(layout, length)
    observation = 5 + 3 * sample.record.observation
    sample = sample._replace(record=sample.record._replace(observation=observation))
    learner.step(distribute(strategy, [[sample]]))
    policy = agent.make_policy(networks, "evaluate")
    count, mean, variance = (
        next(variable.numpy() for variable in policy.variables if variable.name == f"{name}:0")
        for name in ("count", "mean", "variance")
    )
    # Items of transitions are represented by their first observation, and PPO's rollouts end before their last one.
    seen = next(rows for rows in (observation[:1], observation[:-1], observation) if rows[..., 0].size == count)
    np.testing.assert_allclose(mean, seen.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(variance, seen.var(axis=(0, 1)), rtol=1e-5)

    def acted(observation):
        ones = np.ones(4, np.float32)
        timestep = Timestep(observation.astype(np.float32), 0 * ones, ones, ones > 0, ones < 0)
        action, _, _ = policy(timestep, policy.initial_state(4), tf.range(4), tf.constant([1, 1]))
        return action.numpy()

    # What is normalized to the same is acted on in the same way; and beyond ten deviations all is the same.
    far = mean + 10 * np.sqrt(variance)
    np.testing.assert_allclose(acted(np.tile(far, (4, 1))), acted(np.tile(far + 50, (4, 1))), atol=1e-5)


@pytest.mark.slow("daily")
def test_targets_normalize_by_the_newest_statistics():
    for name in ("apex", "td3"):
        agent, spec, _ = made(name)
        agent = with_values(agent, {"network.normalize_observations": True})
        networks, _, _ = begin(agent, spec, tf.distribute.get_strategy(), None)
        counts = {id(variable) for variable in networks.variables if variable.name == "count:0"}
        assert len(counts) == 1


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", slow_but(["sac", "td3", "d4pg", "dmpo", "apex"], "sac", "apex"))
def test_with_its_defaults_an_agent_learns_from_features_of_any_scale(name):
    """Without normalization, values of features of millions are in the tens of thousands from the first step on."""
    agent = from_values(agent_class(name), {"batch_size": 8, "network.hidden_sizes": (32, 32)})
    spec = DISCRETE if name == "apex" else CONTINUOUS
    networks, learner, layout = begin(agent, spec, tf.distribute.get_strategy(), None)
    sample = random_sample(layout, getattr(agent, "n_step", 1))
    far = np.array([5e6, -1e-4, 1.0]) * (1 + 0.1 * sample.record.observation)
    sample = sample._replace(record=sample.record._replace(observation=far.astype(np.float32)))
    seed = () if learner._seed is None else (tf.constant([1, 0], tf.int64),)
    for _ in range(2):
        output = learner._loss(sample, *seed)
    assert abs(divided(output.metrics)["value"]) < 10
    each = output.loss.values() if isinstance(output.loss, dict) else [output.loss]
    assert all(abs(loss) < 100 for loss in each)
