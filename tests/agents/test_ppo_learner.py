"""PPO's learner: which data it takes, and the epochs of an iteration."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from ppo_samples import DISCRETE, layout_of, of_step, random_sample

from callboard.agents.learning import column_parts
from callboard.agents.ppo import Ppo
from callboard.data import Sample
from callboard.networks.network import Inputs
from callboard.settings.nested_settings import from_values
from callboard.transitions import valid_transitions


def iterate(agent: Ppo, samples: list[Sample], steps: int, max_steps: int = 1000) -> tuple[Any, list[dict[str, float]]]:
    layout = layout_of(DISCRETE, max_steps=max_steps)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    iterator = iter([tree.map_structure(tf.constant, sample) for sample in samples])
    updates = [learner.step(iterator) for _ in range(steps)]
    assert next(iterator, None) is None
    return networks, [{name: float(value) for name, value in update.metrics.items()} for update in updates]


@pytest.mark.slow("daily")
def test_only_what_is_new_enough_is_learned_from_and_rates_fall():
    agent = from_values(
        Ppo,
        {
            "unroll_length": 5,
            "batch_size": 8,
            "minibatches": 2,
            "epochs": 3,
            "max_policy_lag": 1,
            "clip_decay": True,
            "optimizer.learning_rate": 0.1,
            "optimizer.learning_rate_decay": True,
        },
    )
    rng = np.random.default_rng(0)
    # Steps of the weights that acted on each part of four sequences; two make a batch.
    steps = [0, 0, 1, 0, 0, 2, 7, 1]
    samples = [of_step(random_sample(rng, agent, DISCRETE, batch=4), step) for step in steps]
    _, metrics = iterate(agent, samples, steps=3, max_steps=160)
    # The parts of the second batch have ages of 1 and 0, those of the third of 0 and 1.
    transitions = [np.sum(valid_transitions(*sample.record[1:3], sample.record.discount)) for sample in samples]
    lags = [old / (old + new) for old, new in ((transitions[3], transitions[2]), (transitions[7], transitions[5]))]
    assert [row["policy_lag"] for row in metrics] == pytest.approx([0.0, *lags])
    assert [row["dropped_rollouts"] for row in metrics] == [0, 0, 2]
    assert [row["learning_rate"] for row in metrics] == pytest.approx([0.1, 0.075, 0.05])
    assert [row["clip_range"] for row in metrics] == pytest.approx([0.2, 0.15, 0.1])
    assert [row["epochs"] for row in metrics] == [3, 3, 3]


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_the_first_epoch_begins_with_the_network_that_acted():
    agent = from_values(
        Ppo, {"unroll_length": 5, "batch_size": 4, "epochs": 1, "minibatches": 1, "optimizer.learning_rate": 0.1}
    )
    layout, rng = layout_of(DISCRETE), np.random.default_rng(0)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    for step in range(2):
        sample = of_step(random_sample(rng, agent, DISCRETE), step)
        record = sample.record._replace(observation=5 + 3 * sample.record.observation)
        inputs = Inputs(tf.constant(record.observation[:-1]))
        outputs, _ = networks.network.unroll(inputs, (), tf.constant(record.first[:-1]))
        log_probs = tf.nn.log_softmax(outputs.logits).numpy()
        taken = np.take_along_axis(log_probs, record.action[..., np.newaxis], axis=-1)[..., 0]
        record = record._replace(extras=record.extras._replace(log_prob=taken))
        parts = [tree.map_structure(tf.constant, sample._replace(record=record))]
        assert float(learner.step(iter(parts)).metrics["approximate_kl"]) == pytest.approx(0, abs=1e-6)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_every_epoch_of_every_step_has_an_order_of_its_own():
    seen = []

    class Watched(Ppo):
        def loss(self, networks, rollout, clip_range):
            tf.numpy_function(lambda log_prob: seen.append(log_prob.ravel().tolist()), [rollout.log_prob], [])
            return super().loss(networks, rollout, clip_range)

    agent = Watched(unroll_length=5, batch_size=4, epochs=3, minibatches=2)
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE)
    iterate(agent, [of_step(sample, step) for step in range(2)], steps=2)
    orders = [tuple(first + second) for first, second in zip(seen[::2], seen[1::2], strict=True)]
    # The same 20 transitions each time.
    assert len(orders) == len(set(orders)) == 6 and len({tuple(sorted(order)) for order in orders}) == 1
    assert len(set(orders[0])) == 20


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_epochs_end_early_where_the_policy_has_moved_far():
    agent = from_values(
        Ppo, {"unroll_length": 5, "batch_size": 8, "minibatches": 2, "epochs": 9, "optimizer.learning_rate": 0.1}
    )
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE, batch=4)
    for target, expected in ((1e-4, range(1, 2)), (1e9, range(9, 10))):
        _, (metrics,) = iterate(dataclasses.replace(agent, target_kl=target), [sample, sample], steps=1)
        assert metrics["epochs"] in expected


@pytest.mark.slow
def test_accumulated_minibatches_are_one_larger_minibatch():
    settings = {"unroll_length": 5, "batch_size": 4, "epochs": 2, "optimizer.learning_rate": 0.1}
    sample = random_sample(np.random.default_rng(0), from_values(Ppo, settings), DISCRETE)
    weights, metrics = [], []
    for parts in (1, 4):
        agent = from_values(Ppo, {**settings, "minibatches": parts, "accumulate": parts})
        networks, rows = iterate(agent, [sample], steps=1)
        weights.append([variable.numpy() for variable in networks.network.trainable_variables])
        metrics.append(rows[0])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("settings", [{}, {"network.core": "lstm"}, {"bonus.name": "rnd"}])
def test_a_batch_whose_values_are_computed_in_parts_is_learned_from_as_a_whole(monkeypatch, settings):
    agent = from_values(Ppo, {"unroll_length": 5, "batch_size": 4, "epochs": 2, "minibatches": 2, **settings})
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE)
    sample = sample._replace(state=tree.map_structure(np.float32, sample.state))
    weights = []
    for most in (column_parts._MOST_NUMBERS, 1):
        monkeypatch.setattr(column_parts, "_MOST_NUMBERS", most)
        networks, metrics = iterate(agent, [of_step(sample, 0)], steps=1)
        weights.append([*map(np.asarray, networks.network.trainable_variables), *metrics[0].values()])
    for whole, parts in zip(*weights, strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
