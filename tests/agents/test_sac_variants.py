"""SAC with n-step returns, ensembles, quantiles, dropout, batch renormalization and resets: losses against loops."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from linear_updates import adam_that_shows_lengths, in_float64, is_valid, random_windows
from small_worlds import layout_of

from callboard.agents.drq import DrQ
from callboard.agents.learning.gradient_learner import GradientLearner
from callboard.agents.learning.gradient_step import LossOutput, Objective
from callboard.agents.learning.periodic_reset import PeriodicReset
from callboard.agents.offline.cql import CQL
from callboard.agents.sac import Sac
from callboard.agents.td3 import TD3
from callboard.errors import CallboardError
from callboard.networks import stateless_random as noise
from callboard.networks.random_streams import Stream, stream_seed
from callboard.networks.torsos.batch_renormalization import batch_statistics
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

pytestmark = pytest.mark.usefixtures("eagerly")
SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, 2.0, 6.0))
BATCH = 12
COMMON = {
    "normalize_rewards": False,
    "batch_size": BATCH,
    "discount": 0.9,
    **adam_that_shows_lengths(actor=0.1, critic=0.2),
}
SAC = {**COMMON, "temperature": 0.7, "target_entropy": 0.4}
SEED = tf.constant([1, 5], tf.int64)
VARIANTS: dict[str, dict[str, Any]] = {
    "n_step": {"n_step": 3},
    "redq": {"critics.number": 5, "critics.minimum_of": 2},
    "tqc": {"critics.number": 3, "critics.quantiles": 4, "critics.dropped": 1, "n_step": 2},
}


def windows(n: int) -> Any:
    return random_windows(8, BATCH, n, lambda rng, shape: rng.uniform(2.0, 6.0, (*shape, 1)))


def spread(module: tf.Module) -> None:
    rng = np.random.default_rng(5)
    for variable in module.variables:
        if variable.trainable and variable.shape.rank:
            variable.assign(0.5 * rng.normal(size=variable.shape))


def outputs_of(critic: Any, x: np.ndarray, unit: float) -> np.ndarray:
    """The outputs `[K, M]` of linear critics."""
    weights = [variable.numpy() for variable in critic.trainable_variables]
    if len(weights) == 2:
        kernels, biases = weights[0], weights[1][:, 0]
    else:
        kernels, biases = np.stack(weights[::2]), np.stack(weights[1::2])
    return np.einsum("f,kfm->km", np.append(x, unit), kernels) + biases


def chosen_subset(seed: Any, number: int, size: int) -> list[int]:
    order = noise.uniform(seed, Stream.CRITIC_SUBSET, [0], (number,), tf.float64).numpy()[0]
    return sorted(range(number), key=lambda k: -order[k])[:size]


def target_values(agent: Any, outputs: np.ndarray) -> list[float]:
    """The values of which a target is made, by the papers' words."""
    critics = agent.critics
    if critics.quantiles is not None:
        pooled = sorted(float(one) for row in outputs for one in row)
        return pooled[: len(pooled) - critics.number * critics.dropped]
    subset = range(critics.number) if critics.minimum_of is None else chosen_subset(SEED, critics.number, 2)
    return [min(outputs[k, 0] for k in subset)]


def critic_loss_of(outputs: np.ndarray, targets: list[float]) -> float:
    """The loss of all critics: squares, or the quantile Huber loss, a mean over quantiles and targets."""
    total = 0.0
    for row in outputs:
        if len(row) == 1:
            total += (row[0] - targets[0]) ** 2 / 2
            continue
        for i, theta in enumerate(row):
            for target in targets:
                error = target - theta
                huber = error**2 / 2 if abs(error) <= 1 else abs(error) - 0.5
                total += abs((2 * i + 1) / (2 * len(row)) - (error < 0)) * huber / len(row) / len(targets)
    return total


def ends_after(record: Any, n: int, b: int) -> int:
    """How many transitions of a window are added up; 0 if nothing is learned from it."""
    count = 0
    while count < n and is_valid(record, count, b):
        count += 1
        if record.discount[count - 1, b] == 0:
            break
    return count


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", VARIANTS)
def test_losses_of_sac_are_those_of_the_papers(name):
    agent = from_values(Sac, {**SAC, **VARIANTS[name]})
    n, sample = agent.n_step, windows(agent.n_step)
    record = sample.record
    with in_float64():
        learned = agent.make_networks(layout_of(SPEC)).actor_critic
        spread(learned)
        found = {key: float(value) for key, value in agent.loss(learned, sample, SEED).loss.items()}
    kernel, bias = (variable.numpy() for variable in learned.policy.trainable_variables)

    def act(x: np.ndarray, stream_of: Any, stream: Stream, b: int) -> tuple[float, float]:
        z = noise.standard_normal(stream_of, stream, np.arange(BATCH), (1,), tf.float64).numpy()[b, 0]
        mean, log_std = x @ kernel + bias
        unit = np.tanh(mean + np.exp(log_std) * z)
        return unit, -(z**2) / 2 - log_std - np.log(2 * np.pi) / 2 - np.log(1 - unit**2)

    lengths, sums = set(), {"critic_loss": 0.0, "actor_loss": 0.0, "temperature_loss": 0.0}
    for b in range(BATCH):
        length = ends_after(record, n, b)
        lengths.add(length)
        if not length:
            continue
        x = record.observation[:, b].astype(np.float64)
        # At every observation after the first, the policy is paid for its entropy.
        returns, discount = 0.0, 1.0
        for t in range(length):
            returns += discount * record.reward[t, b]
            discount *= 0.9 * record.discount[t, b]
            seed = SEED if t + 1 == n else stream_seed(SEED, Stream.WINDOW_TIME, t + 1)
            unit, log_prob = act(x[t + 1], seed, Stream.TARGET_ACTION, b)
            returns -= discount * 0.7 * log_prob
        values = target_values(agent, outputs_of(learned.target_critic, x[length], unit))
        taken = outputs_of(learned.critic, x[0], (record.action[0, b, 0] - 4.0) / 2.0)
        sums["critic_loss"] += critic_loss_of(taken, [returns + discount * value for value in values])
        unit, log_prob = act(x[0], SEED, Stream.LEARNED_ACTION, b)
        of_each = outputs_of(learned.critic, x[0], unit).mean(axis=1)
        sums["actor_loss"] += 0.7 * log_prob - (of_each.min() if name == "n_step" else of_each.mean())
        sums["temperature_loss"] -= 0.7 * (log_prob + 0.4)
    assert lengths == set(range(n + 1)), "windows of every length"
    for key, total in sums.items():
        np.testing.assert_allclose(found[key], total / BATCH, rtol=1e-6, err_msg=key)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", VARIANTS)
def test_losses_of_td3_are_those_of_the_papers(name):
    agent = from_values(TD3, {**COMMON, "target_noise": 0.4, **VARIANTS[name]})
    n, sample = agent.n_step, windows(agent.n_step)
    record = sample.record
    with in_float64():
        learned = agent.make_networks(layout_of(SPEC)).actor_critic
        spread(learned)
        found = {key: float(value) for key, value in agent.loss(learned, sample, SEED).loss.items()}
    normal = noise.standard_normal(SEED, Stream.TARGET_ACTION, np.arange(BATCH), (1,), tf.float64).numpy()

    def act(policy: Any, x: np.ndarray) -> float:
        kernel, bias = (variable.numpy() for variable in policy.trainable_variables)
        return float(np.tanh(x @ kernel + bias)[0])

    sums = {"critic_loss": 0.0, "actor_loss": 0.0}
    for b in range(BATCH):
        length = ends_after(record, n, b)
        if not length:
            continue
        x = record.observation[:, b].astype(np.float64)
        returns, discount = 0.0, 1.0
        for t in range(length):
            returns += discount * record.reward[t, b]
            discount *= 0.9 * record.discount[t, b]
        unit = act(learned.target_policy, x[length]) + max(-0.5, min(0.5, 0.4 * normal[b, 0]))
        outputs = outputs_of(learned.target_critic, x[length], max(-1.0, min(1.0, unit)))
        targets = [returns + discount * value for value in target_values(agent, outputs)]
        sums["critic_loss"] += critic_loss_of(
            outputs_of(learned.critic, x[0], (record.action[0, b, 0] - 4.0) / 2.0), targets
        )
        of_each = outputs_of(learned.critic, x[0], act(learned.policy, x[0])).mean(axis=1)
        sums["actor_loss"] -= of_each[0] if name == "n_step" else of_each.mean()
    for key, total in sums.items():
        np.testing.assert_allclose(found[key], total / BATCH, rtol=1e-6, err_msg=key)


@pytest.mark.slow("daily")
def test_dropout_is_of_each_pass_and_of_no_policy_that_acts():
    agent = from_values(Sac, {**SAC, "critics.dropout": 0.5, "critics.hidden_sizes": (64,), "critics.layer_norm": True})
    learned = agent.make_networks(layout_of(SPEC)).actor_critic
    sample = windows(1)
    one, same, other = (agent.loss(learned, sample, tf.constant([1, seed], tf.int64)).loss for seed in (5, 5, 6))
    assert float(one["critic_loss"]) == float(same["critic_loss"]) != float(other["critic_loss"])
    x, unit = sample.record.observation[0], np.zeros((BATCH, 1), np.float32)
    np.testing.assert_array_equal(learned.critic(x, unit), learned.critic(x, unit))
    with agent._dropout(sample, SEED, 0):
        dropped = learned.critic(x, unit)
    assert not np.allclose(dropped, learned.critic(x, unit))


# CrossQ.


def test_crossq_has_one_pass_for_both_observations_and_no_target_network():
    settings = {**SAC, "crossq": True, "network.hidden_sizes": (4,), "critics.hidden_sizes": (5,)}
    agent, sample = from_values(Sac, settings), windows(1)
    networks = agent.make_networks(layout_of(SPEC))
    learned, record = networks.actor_critic, sample.record
    assert learned.target_critic is None
    spread(learned)
    later = agent._later(learned, sample, SEED)
    taken = np.float32((record.action[0] - 4.0) / 2.0)
    valid = np.array([is_valid(record, 0, b) for b in range(BATCH)])
    assert valid.any() and not valid.all()
    with batch_statistics(np.tile(valid, 2)):
        q = learned.critic(
            np.concatenate([record.observation[0], record.observation[1]]), tf.concat([taken, later.choice], axis=0)
        ).numpy()
    found = float(agent.loss(learned, sample, SEED).loss["critic_loss"])
    total = 0.0
    for b in range(BATCH):
        if valid[b]:
            value = min(q[:, BATCH + b]) - 0.7 * float(later.log_prob[b])
            target = record.reward[0, b] + 0.9 * record.discount[0, b] * value
            total += sum((one - target) ** 2 / 2 for one in q[:, b])
    np.testing.assert_allclose(found, total / BATCH, rtol=1e-4)
    # What acts holds the statistics, too.
    names = [variable.name for variable in agent.make_policy(networks, "train").variables]
    assert sum("moving_mean" in name for name in names) == 2


# What is refused.


@pytest.mark.parametrize(
    "kind, settings, message",
    [
        (Sac, {"crossq": True, "target_update_rate": 0.1}, "no target critics: leave agent.target_update_rate out"),
        (Sac, {"crossq": True, "network.layer_norm": True}, "leave agent.network.layer_norm out"),
        (Sac, {"crossq": True, "critics.dropout": 0.1}, "leave agent.critics.dropout out"),
        (
            Sac,
            {"network.block": "simba", "network.hidden_sizes": (8,), "critics.hidden_sizes": (8, 9)},
            r"set agent.critics.hidden_sizes to such as \[512, 512\], not \[8, 9\]",
        ),
        (TD3, {"network.block": "simba", "critics.layer_norm": True}, "leave agent.critics.layer_norm out"),
        (CQL, {"critics.quantiles": 5}, "cql .* leave agent.critics.quantiles out, or use sac"),
        (CQL, {"critics.dropout": 0.1}, "cql .* leave agent.critics.dropout out, or use sac"),
        (Sac, {"critics.hidden_sizes": (), "critics.dropout": 0.1}, "critics.dropout is of hidden layers, and the"),
        (TD3, {"network.hidden_sizes": (), "critics.layer_norm": True}, "critics.layer_norm is of hidden layers, and"),
        (Sac, {"reset_every": 3, "updates_per_call": 10}, r"reset_every \(3\) must be .* set it to 10$"),
        (TD3, {"reset_every": 15, "updates_per_call": 10}, r"reset_every \(15\) must be .* set it to 10 or 20$"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused_in_one_line(kind, settings, message):
    with pytest.raises(CallboardError, match=message) as caught:
        from_values(kind, settings).check(layout_of(SPEC))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"critics.minimum_of": 3}, "critics: minimum_of is 3, and there are 2 critics"),
        ({"critics.dropped": 1}, "critics: dropped is a number of quantiles: set quantiles"),
        ({"critics.quantiles": 5, "critics.minimum_of": 1}, "leave minimum_of out, and set dropped"),
        ({"critics.quantiles": 5, "critics.dropped": 5}, "dropped must be less than the 5 quantiles"),
        ({"critics.dropout": 1.0}, "critics.dropout must be a number"),
        ({"network.block": "simba", "network.hidden_sizes": (8, 9)}, r"hidden_sizes that are equal.*not \[8, 9\]"),
        ({"network.block": "simba", "network.layer_norm": True}, "set layer_norm to false"),
        ({"replay.hindsight.strategy": "final"}, "strategy has no effect without goals: set goals"),
        ({"replay.hindsight.horizon": 50}, "horizon has no effect without goals: set goals"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(CallboardError, match=message):
        from_values(Sac, settings)


def test_quantiles_are_for_numbers_and_drq_has_no_batch_renormalization():
    with pytest.raises(CallboardError, match="leave agent.critics.quantiles out here"):
        discrete = SPEC._replace(action=dm_specs.DiscreteArray(3))
        from_values(Sac, {"critics.quantiles": 5}).check(layout_of(discrete))
    image = SPEC._replace(observation=dm_specs.BoundedArray((24, 24, 1), np.uint8, 0, 255))
    with pytest.raises(CallboardError, match="leave agent.crossq out, or use sac"):
        DrQ(crossq=True).check(layout_of(image))


# Resets.


class OneWeight(tf.Module):
    normalizer = None

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(1.0)

    def begin_targets(self):
        pass


def test_a_run_that_ends_where_a_reset_is_due_has_what_it_learned():
    networks, strategy = OneWeight(), tf.distribute.get_strategy()
    learner = GradientLearner(
        lambda sample: LossOutput(tf.identity(networks.weight), {}),
        [Objective("loss", [networks.weight], tf.keras.optimizers.SGD(1.0, jit_compile=False))],
        strategy,
        reset=PeriodicReset(2, networks, OneWeight, strategy, seed=1),
    )
    weights = []
    for _ in range(5):
        learner.step(iter([windows(1)]))
        weights.append(float(networks.weight))
    assert weights == [0.0, -1.0, 0.0, -1.0, 0.0]


@pytest.mark.slow("daily")
def test_networks_and_moments_begin_anew_and_statistics_remain():
    agent = from_values(Sac, {**SAC, "reset_every": 2, "network.normalize_observations": True})
    layout, strategy = layout_of(SPEC), tf.distribute.get_strategy()
    networks = agent.make_networks(layout)
    learner, learned = agent.make_learner(networks, strategy, layout), networks.actor_critic
    sample = windows(1)
    spread(learned.policy)
    learner.step(iter([sample]))
    assert any(np.any(variable) for variable in learner.optimizers[0].variables[1:])
    learner.step(iter([sample]))
    # A run that ends here has what it learned.
    assert int(learner.optimizers[0].iterations) == 2
    kernel = learned.critic.trainable_variables[0].numpy()
    learner._reset(2, learner.optimizers)
    assert not np.allclose(kernel, learned.critic.trainable_variables[0], atol=0.1)
    for online, target in zip(learned.critic.variables, learned.target_critic.variables, strict=True):
        np.testing.assert_array_equal(online, target)
    np.testing.assert_allclose(learned.alpha, 0.7, rtol=1e-6)
    for optimizer in learner.optimizers:
        assert int(optimizer.iterations) == 0 and not any(np.any(one) for one in optimizer._momentums)
    assert float(learned.normalizer._count) == 2 * BATCH and bool(networks.learning)
    # It follows from the seed and the step.
    again = agent.make_networks(layout)
    other = agent.make_learner(again, strategy, layout)
    for learns in (learner, *3 * [other]):
        learns.step(iter([sample]))
    assert int(other.optimizers[0].iterations) == 1
    for one, same in zip(learned.critic.variables, again.actor_critic.critic.variables, strict=True):
        np.testing.assert_array_equal(one, same)
    assert dataclasses.replace(agent, reset_every=None).make_learner(again, strategy, layout)._reset is None
