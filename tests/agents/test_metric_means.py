"""Metrics of every agent of the table are means over the valid transitions of the global batch."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from agent_cases import SMALL_UPDATES
from slow_cases import slow_but
from test_episode_ends import with_other_numbers
from update_on_replicas import BATCH, begin, made, random_sample

from callboard.agents.learning.gradient_step import GradientStep, LossOutput, Objective, combined_metrics, divided
from callboard.agents.losses.replicas import Mean, valid_mean
from callboard.settings.nested_settings import with_values

FAST = ("apex", "ppo", "impala")
AGENTS = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SMALL_UPDATES]
OF_ALL = {
    "loss",
    "bonus_loss",
    "gradient_norm",
    "valid_fraction",
    "learning_rate",
    "epochs",
    "clip_range",
    "dropped_rollouts",
}
"""What is minimized, with its gradient, is divided by all transitions of a batch."""


def metrics_of(name, sample_of, batch_size=BATCH, **settings):
    """Metrics of the first update on a batch; `sample_of` takes one of `BATCH` items."""
    agent, spec, length = made(name)
    agent = with_values(agent, {"batch_size": batch_size, "network.normalize_observations": False, **settings})
    _, learner, layout = begin(agent, spec, tf.distribute.get_strategy(), None)
    update = learner.step(iter([sample_of(random_sample(layout, length))]))
    return {metric: float(value) for metric, value in update.metrics.items() if not metric.endswith("gradient_norm")}


def items(sample, chosen):
    """The items of a sample with these indices."""
    own, at_first = (lambda leaf: leaf[:, chosen]), (lambda leaf: leaf[chosen])
    return sample._replace(
        record=tree.map_structure(own, sample.record),
        state=tree.map_structure(at_first, sample.state),
        info=tree.map_structure(at_first, sample.info),
    )


def ended(sample, where):
    """A sample in some of whose items no transition is valid."""
    last = sample.record.last.copy()
    last[:, where] = True
    return sample._replace(record=sample.record._replace(last=last))


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", AGENTS)
def test_items_without_a_valid_transition_change_no_mean(name):
    # First, since what is sampled follows from an item's position in the batch.
    valid = np.arange(BATCH) < BATCH // 2
    # The weights of importance are relative to the largest of the batch.
    probability = np.full(BATCH, 0.05)

    def alike(sample):
        return sample._replace(info=sample.info._replace(probability=probability))

    alone = metrics_of(name, lambda sample: items(alike(sample), valid), BATCH // 2)
    among = metrics_of(name, lambda sample: ended(alike(sample), ~valid))
    compared = alone.keys() - OF_ALL
    assert len(compared) > 1
    for metric in compared:
        assert among[metric] == pytest.approx(alone[metric], rel=2e-4, abs=1e-6), metric


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", AGENTS)
def test_what_is_not_valid_is_in_no_mean(name):
    """Every other transition is one to the next episode."""

    def short(sample):
        record = sample.record
        last = np.broadcast_to((np.arange(len(record.last)) % 2 == 1)[:, np.newaxis], record.last.shape).copy()
        first = np.concatenate([np.ones((1, BATCH), bool), last[:-1]])
        discount = np.ones_like(record.discount)
        return sample._replace(record=record._replace(first=first, last=last, discount=discount))

    plain = metrics_of(name, short)
    other = metrics_of(
        name, lambda sample: with_other_numbers(short(sample)) if len(sample.record.reward) > 1 else short(sample)
    )
    for metric in plain.keys() - OF_ALL:
        assert other[metric] == pytest.approx(plain[metric], rel=2e-4, abs=1e-6), metric


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("episode", slow_but([1, 3], 3))
def test_the_entropy_of_a_uniform_policy_does_not_depend_on_the_length_of_episodes(episode):
    for name in ("ppo", "impala"):

        def cut(sample, name=name):
            time = np.arange(len(sample.record.last)) % (episode + 1)
            flags = [np.broadcast_to((time == at)[:, np.newaxis], sample.record.last.shape) for at in (0, episode)]
            return sample._replace(record=sample.record._replace(first=flags[0], last=flags[1]))

        of_agent = metrics_of(name, cut, **{"network.hidden_sizes": ()})
        assert of_agent["valid_fraction"] == pytest.approx({1: 3 / 5, 3: 4 / 5}[episode])
        assert of_agent["entropy"] == pytest.approx(np.log(3), abs=0.2 if name == "impala" else 0.05)


def test_a_metric_is_the_mean_of_all_batches_and_is_zero_of_nothing():
    weight = tf.Variable(1.0)
    step = GradientStep([Objective("loss", [weight], tf.keras.optimizers.SGD(0.0))], tf.distribute.get_strategy(), 2)
    values = tf.constant([[1.0, 2.0, np.nan], [30.0, np.nan, np.nan]])
    valid = ~tf.math.is_nan(values)

    def loss(microbatch):
        shown = valid_mean(valid[microbatch], tf.float32)
        return LossOutput(weight * 0.0, {"mean": shown(values[microbatch]), "sum": tf.constant(float(microbatch))})

    metrics, _ = step(loss)
    assert float(metrics["mean"]) == 11.0 and float(metrics["sum"]) == 0.5
    parts = [{"mean": Mean(tf.constant(total), tf.constant(count))} for total, count in ((3.0, 2.0), (30.0, 1.0))]
    assert float(divided(combined_metrics(parts))["mean"]) == 11.0
    assert float(valid_mean(tf.constant([False]), tf.float32)(tf.constant([7.0])).value) == 0.0
    with pytest.raises(ValueError, match="same shape"):
        valid_mean(tf.constant([True]), tf.float32)(tf.constant([7.0, 8.0]))
