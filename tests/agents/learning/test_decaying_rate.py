"""Learning rates of runs that are resumed: with more steps they rise from where they were."""

import numpy as np
import pytest
import tensorflow as tf
from ppo_samples import DISCRETE, layout_of

from callboard.agents.learning.decaying_rate import DecayingRate, continue_decay
from callboard.agents.learning.live_settings import with_value
from callboard.agents.learning.optimizers import make_split_optimizer
from callboard.agents.ppo import Ppo
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.settings.nested_settings import from_values

SGD = OptimizerSettings(name="sgd", learning_rate=0.1, epsilon=1e-8, max_gradient_norm=None)


class Training:
    """Two weights, of which the second has another rate; the steps of SGD with a gradient of -1 are the rates."""

    def __init__(self, steps, factor=2.0):
        self.weights = [tf.Variable(0.0), tf.Variable(0.0)]
        self.optimizer = make_split_optimizer(SGD, steps, self.weights[1:], factor)
        self.optimizer.build(self.weights)
        self.checkpoint = tf.train.Checkpoint(optimizer=self.optimizer, weights=self.weights)

    @tf.function(autograph=False)
    def step(self):
        self.optimizer.apply_gradients([(tf.constant(-1.0), weight) for weight in self.weights])

    def rates(self, steps):
        """The rates of both weights in each of some steps."""
        values = [[float(weight) for weight in self.weights]]
        for _ in range(steps):
            self.step()
            values.append([float(weight) for weight in self.weights])
        return np.diff(values, axis=0)

    def resumed(self, path, steps):
        other = Training(steps)
        other.checkpoint.read(self.checkpoint.write(str(path / "saved"))).assert_consumed()
        return other


@pytest.mark.slow("daily")
@pytest.mark.parametrize("made", [40, 100])
def test_with_more_steps_the_rate_rises_from_the_last_one_and_falls_to_zero(tmp_path, made):
    first = Training(100)
    before = first.rates(made)
    second = first.resumed(tmp_path, 300)
    assert continue_decay(second.optimizer)
    after = second.rates(300 - made)
    both = np.concatenate([before, after])
    np.testing.assert_allclose(both[:, 1], 2 * both[:, 0], atol=1e-5)
    rates = both[:, 0]
    # From its last value it rises within a tenth of the steps that are left, and no step of it is a jump.
    assert np.abs(np.diff(rates)).max() < 0.1 * rates[0]
    assert rates[made] == pytest.approx(rates[made - 1], abs=0.005)
    joined = made + (300 - made) // 10 + 1
    planned = 0.1 * (1 - np.arange(300) / 300)
    np.testing.assert_allclose(rates[joined:], planned[joined:], atol=1e-5)


@pytest.mark.slow("daily")
def test_an_interruption_while_it_rises_is_no_jump_either(tmp_path):
    first = Training(100)
    first.rates(100)
    second = first.resumed(tmp_path, 300)
    continue_decay(second.optimizer)
    last = second.rates(10)[-1, 0]
    third = second.resumed(tmp_path, 300)
    assert continue_decay(third.optimizer)
    assert third.rates(1)[0, 0] == pytest.approx(last, abs=0.005) and last > 0.02


@pytest.mark.slow("daily")
@pytest.mark.parametrize("steps", [100, 50])
def test_with_as_many_or_fewer_steps_the_rate_is_that_of_the_run(tmp_path, steps):
    first = Training(100)
    first.rates(40)
    second = first.resumed(tmp_path, steps)
    assert not continue_decay(second.optimizer)
    np.testing.assert_allclose(second.rates(1)[0], [0.1 * (1 - 40 / steps), 0.2 * (1 - 40 / steps)], atol=1e-5)
    unchanged = DecayingRate(0.1, 100)
    assert float(unchanged(40)) == float(tf.keras.optimizers.schedules.PolynomialDecay(0.1, 100, 0.0)(40))


def test_a_constant_rate_stays(tmp_path):
    constant = OptimizerSettings(learning_rate=0.1, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)
    optimizer = make_split_optimizer(constant, 10, [], 1.0)
    optimizer.build([tf.Variable(0.0)])
    assert not continue_decay(optimizer)


@pytest.mark.parametrize("decays", [True, False])
def test_ppo_continues_from_its_last_rate(decays):
    agent = from_values(
        Ppo,
        {
            "unroll_length": 5,
            "batch_size": 8,
            "minibatches": 2,
            "optimizer.learning_rate_decay": decays,
            "optimizer.learning_rate": 0.1,
        },
    )
    layout = layout_of(DISCRETE, max_steps=8000)
    learner = agent.make_learner(agent.make_networks(layout), tf.distribute.get_strategy(), layout)
    # As restored from a run of 100 steps, which it has made.
    learner.steps.assign(100)
    learner.optimizer.learning_rate = 0.001 if decays else 0.1
    assert learner.continue_decay() == decays
    if decays:
        assert float(learner._learning_rate(100)) == pytest.approx(0.001, abs=0.01)
        assert float(learner._learning_rate(111)) == pytest.approx(0.1 * (1 - 111 / 200), abs=1e-6)


def test_a_rate_that_is_changed_while_it_rises_changes_by_as_much():
    rate = tf.Variable(0.1)
    schedule = DecayingRate(rate, 100)
    assert schedule.continue_from(50, 0.01)
    before = np.array([schedule(step) for step in range(50, 100)])
    rate.assign(1e-6)
    np.testing.assert_allclose([schedule(step) for step in range(50, 100)], 1e-5 * before, rtol=1e-4)
    assert before.min() >= 0.0


def test_the_rate_follows_what_is_left_of_a_run_and_not_learner_steps(tmp_path):
    left = tf.Variable(1.0)
    settings = with_value(SGD, ["learning_rate_decay"], left)
    optimizer = make_split_optimizer(settings, 1000, [], 1.0)
    weight = tf.Variable(0.0)
    optimizer.build([weight])
    rates = []
    for of_run in (1.0, 0.75, 0.75, 0.5, 0.0):
        left.assign(of_run)
        before = float(weight)
        optimizer.apply_gradients([(tf.constant(-1.0), weight)])
        rates.append(float(weight) - before)
    np.testing.assert_allclose(rates, [0.1, 0.075, 0.075, 0.05, 0.0], atol=1e-6)
    # Resumed with twice the steps, of which half is left: from the last rate, 0, up within a tenth of that.
    left.assign(0.5)
    assert continue_decay(optimizer)
    rate = optimizer._learning_rate
    assert float(rate(5)) == pytest.approx(0.0, abs=1e-6)
    left.assign(0.475)
    assert float(rate(6)) == pytest.approx(0.0475 / 2, abs=1e-6)
    left.assign(0.45)
    assert float(rate(7)) == pytest.approx(0.045, abs=1e-6)
