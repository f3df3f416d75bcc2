"""R2D2: its loss against a loop over numbers, what replay keeps for it, what it refuses, and a run."""

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from recording_actor import Actor
from slow_cases import slow_but
from small_worlds import ACTIONS, SPEC, Corridor, layout_of, weights_of

from callboard.agents.learning.gradient_step import divided
from callboard.agents.learning.network_inputs import Carried, sequence_inputs
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.r2d2 import R2D2, R2D2Extras
from callboard.data import ItemInfo, Record, Sample
from callboard.environments import GymnasiumBatch
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.networks.recurrent import LSTMState
from callboard.replay import BatchReader, Elements, ReplayHandle, start_server
from callboard.settings.nested_settings import from_values, with_values
from callboard.specs import EnvironmentSpec

LSTM = 2
SMALL = from_values(
    R2D2,
    {
        "normalize_rewards": False,
        "burn_in": 3,
        "trace_length": 7,
        "network.normalize_observations": False,
        "period": 4,
        "n_step": 3,
        "batch_size": 4,
        "replay.size": 200,
        "replay.min_size": 10,
        "discount": 0.9,
        "priority_eta": 0.7,
        "target_update_period": 2,
        "optimizer.learning_rate": 1e-2,
        "optimizer.learning_rate_decay": False,
        "optimizer.epsilon": 1e-3,
        "optimizer.max_gradient_norm": 40.0,
        "network.hidden_sizes": (3,),
        "network.lstm_size": LSTM,
        "network.stream_size": 0,
    },
)


def random_sample(agent: R2D2, seed: int = 0) -> Sample:
    """Sequences whose episodes end in all ways: terminated or not, with a final observation or without."""
    rng = np.random.default_rng(seed)
    length, batch = agent.burn_in + agent.trace_length, agent.batch_size
    first, last = np.zeros((length + 2, batch), bool), np.zeros((length + 2, batch), bool)
    discount = np.ones((length + 1, batch), np.float32)
    for b in range(batch):
        t = int(rng.integers(1, 6))
        while t <= length:
            terminated, shown = rng.random(2) < 0.5
            # The action at t - 1 ends the episode; with `shown`, its final observation is that at t.
            discount[t - 1, b] = 0.0 if terminated else 1.0
            last[t, b] = shown
            t += int(shown)
            first[t, b] = True
            t += int(rng.integers(1, 7))
    return Sample(
        record=Record(
            observation=rng.normal(size=(length + 1, batch, 2)).astype(np.float32),
            first=first[: length + 1],
            last=last[: length + 1],
            action=rng.integers(ACTIONS, size=(length, batch)).astype(np.int32),
            reward=(5 * rng.normal(size=(length, batch))).astype(np.float32),
            discount=discount[:length],
            extras=R2D2Extras(
                q=np.full((length, batch, ACTIONS), np.nan, np.float32),
                previous_reward=rng.normal(size=(length, batch)).astype(np.float32),
            ),
            version=np.tile([0, 7], (length, batch, 1)).astype(np.int32),
        ),
        state=Carried(
            core=LSTMState(
                hidden=rng.uniform(-1, 1, (batch, LSTM)).astype(tf.keras.backend.floatx()),
                cell=rng.normal(size=(batch, LSTM)).astype(tf.keras.backend.floatx()),
            ),
            previous_action=rng.integers(ACTIONS, size=batch).astype(np.int32),
            frames=(),
        ),
        info=ItemInfo(
            key=np.arange(batch, dtype=np.uint64),
            shard=np.arange(batch, dtype=np.int32) % 2,
            probability=rng.uniform(0.001, 0.01, batch),
            items=np.full(batch, 400),
        ),
    )


# The loss, against a loop over numbers.


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def looped_unroll(weights: list[np.ndarray], rows: list[dict[str, Any]], state: Any) -> tuple[list[np.ndarray], Any]:
    """Values at each row of one sequence, and the state after the last: a layer of ReLUs, an LSTM, dueling heads."""
    (dense, dense_bias, kernel, recurrent, bias, advantage, advantage_bias, value, value_bias) = weights
    assert advantage.shape == (LSTM, ACTIONS)
    hidden, cell = state
    values = []
    for row in rows:
        reward = row["previous_reward"]
        previous = np.append(np.eye(ACTIONS)[row["previous_action"]], np.sign(reward) * np.log1p(abs(reward)))
        if row["first"]:
            hidden, cell, previous = 0 * hidden, 0 * cell, 0 * previous
        features = np.maximum(row["observation"] @ dense + dense_bias, 0)
        gates = np.concatenate([features, previous]) @ kernel + hidden @ recurrent + bias
        write, keep, candidate, read = np.split(gates, 4)
        cell = sigmoid(keep) * cell + sigmoid(write) * np.tanh(candidate)
        hidden = sigmoid(read) * np.tanh(cell)
        advantages = hidden @ advantage + advantage_bias
        values.append(hidden @ value + value_bias + advantages - np.mean(advantages))
    return values, (hidden, cell)


def squash(x: float, epsilon: float = 1e-3) -> float:
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + epsilon * x


def unsquash(x: float, epsilon: float = 1e-3) -> float:
    return np.sign(x) * (((np.sqrt(1 + 4 * epsilon * (abs(x) + 1 + epsilon)) - 1) / (2 * epsilon)) ** 2 - 1)


class LoopedLoss:
    """The loss of a batch in float64; called with other online weights, targets and burn-in stay as they are."""

    def __init__(self, agent: R2D2, sample: Sample, online: list[np.ndarray], target: list[np.ndarray]):
        self.agent = agent
        self.sample = sample
        info = sample.info
        weights = [
            (1 / (items * probability)) ** agent.replay.importance_exponent
            for items, probability in zip(info.items, info.probability, strict=True)
        ]
        self.weights = [weight / max(weights) for weight in weights]
        self.rows = [self._rows(b) for b in range(agent.batch_size)]
        self.states = []
        self.targets = []
        self.priorities = []
        self.td_error = 0.0
        self.counting, self.counts = 0, []
        for b, rows in enumerate(self.rows):
            stored = tuple(leaf[b] for leaf in sample.state.core)
            _, state = looped_unroll(online, rows[: agent.burn_in], stored)
            _, state_of_target = looped_unroll(target, rows[: agent.burn_in], stored)
            q, _ = looped_unroll(online, rows[agent.burn_in :], state)
            q_target, _ = looped_unroll(target, rows[agent.burn_in :], state_of_target)
            targets = [self._target(rows[agent.burn_in :], q, q_target, t) for t in range(agent.trace_length)]
            errors = [
                abs(goal - q[t][rows[agent.burn_in + t]["action"]])
                for t, goal in enumerate(targets)
                if goal is not None
            ]
            self.states.append(state)
            self.targets.append(targets)
            eta = agent.priority_eta
            self.priorities.append(eta * max(errors) + (1 - eta) * sum(errors) / len(errors) + 1e-6)
            self.td_error += sum(errors)
            self.counting += len(errors)
            self.counts.append(len(errors))

    def __call__(self, online: list[np.ndarray]) -> float:
        total = 0.0
        for rows, state, targets, weight in zip(self.rows, self.states, self.targets, self.weights, strict=True):
            trace = rows[self.agent.burn_in :]
            q, _ = looped_unroll(online, trace, state)
            for row, value, goal in zip(trace, q, targets, strict=False):
                if goal is not None:
                    total += weight * (goal - value[row["action"]]) ** 2 / 2
        return total / self.agent.batch_size

    def _rows(self, b: int) -> list[dict[str, Any]]:
        record, state = self.sample.record, self.sample.state
        length = len(record.reward)
        rows = []
        for t in range(length + 1):
            row = dict(observation=record.observation[t, b].astype(float), first=record.first[t, b])
            row["previous_action"] = state.previous_action[b] if t == 0 else record.action[t - 1, b]
            row["previous_reward"] = float(record.extras.previous_reward[0, b] if t == 0 else record.reward[t - 1, b])
            if t < length:
                row |= dict(action=record.action[t, b], reward=float(record.reward[t, b]))
                row["discount"] = float(record.discount[t, b])
                # An ignored action, or a final observation that was lost without a termination.
                lost = record.first[t + 1, b] and record.discount[t, b] != 0
                row["valid"] = not (record.last[t, b] or lost)
            rows.append(row)
        return rows

    def _target(self, rows: list[dict[str, Any]], q: Any, q_target: Any, t: int) -> float | None:
        if not rows[t]["valid"]:
            return None
        clip: Any = self.agent.reward_clip or np.inf
        total, discount, end = 0.0, 1.0, t
        while end < min(t + self.agent.n_step, len(rows) - 1) and rows[end]["valid"] and discount > 0:
            total += discount * np.clip(rows[end]["reward"], -clip, clip)
            discount *= self.agent.discount * rows[end]["discount"]
            end += 1
        if discount > 0:
            value = q_target[end][np.argmax(q[end])]
            total += discount * (unsquash(value) if self.agent.rescale_values else value)
        return squash(total) if self.agent.rescale_values else total


@pytest.fixture
def float64():
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx("float32")


def changed(agent: R2D2, **fields: Any) -> R2D2:
    return with_values(agent, fields)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "agent", [SMALL, changed(SMALL, rescale_values=False, reward_clip=1.0, burn_in=0)], ids=["paper", "plain"]
)
def test_the_loss_its_gradient_and_priorities_are_those_of_the_paper(float64, agent):
    networks = agent.make_networks(layout_of())
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout_of())
    rng = np.random.default_rng(1)
    for variable in networks.variables:
        variable.assign(rng.normal(size=variable.shape))
    online, target = (
        [variable.numpy() for variable in network.trainable_variables] for network in (networks.online, networks.target)
    )
    sample = random_sample(agent)
    expected = LoopedLoss(agent, sample, online, target)

    with tf.GradientTape() as tape:
        loss, metrics, priorities = agent.loss(networks, tree.map_structure(tf.constant, sample))
    assert float(loss) == pytest.approx(expected(online), rel=1e-7)
    np.testing.assert_allclose(priorities, expected.priorities, rtol=1e-7)
    metrics = divided(metrics)
    assert float(metrics["td_error"]) == pytest.approx(expected.td_error / expected.counting, rel=1e-7)
    total = agent.batch_size * agent.trace_length
    assert float(metrics["valid_fraction"]) == pytest.approx(expected.counting / total)
    assert 0.5 < expected.counting / total < 1
    assert float(metrics["importance_weight"]) == pytest.approx(np.average(expected.weights, weights=expected.counts))
    # The gradient by differences: where it differs, it flows into targets, weights or burn-in.
    slopes = []
    for index, gradient in enumerate(tape.gradient(loss, networks.online.trainable_variables)):
        by_differences = np.zeros_like(online[index])
        for place in np.ndindex(online[index].shape):
            moved = []
            for step in (1e-6, -1e-6):
                weights = [weight.copy() for weight in online]
                weights[index][place] += step
                moved.append(expected(weights))
            by_differences[place] = (moved[0] - moved[1]) / 2e-6
        assert np.abs(by_differences).max() > 1e-3
        np.testing.assert_allclose(gradient, by_differences, rtol=1e-5, atol=1e-8)
        slopes.append(by_differences)
    # Adam's first update by that gradient, clipped.
    learner.step(iter([tree.map_structure(tf.constant, sample)]))
    clip = min(1.0, 40 / np.sqrt(sum((slope**2).sum() for slope in slopes)))
    for before, slope, variable in zip(online, slopes, networks.online.trainable_variables, strict=True):
        mean, square = 0.1 * clip * slope, 0.001 * (clip * slope) ** 2
        moved = 1e-2 * np.sqrt(1 - 0.999) / (1 - 0.9) * mean / (np.sqrt(square) + 1e-3)
        np.testing.assert_allclose(variable.numpy() - before, -moved, rtol=1e-4, atol=1e-9)


# What replay keeps.


@pytest.mark.slow("daily")
@pytest.mark.parametrize("together", slow_but([1, 4], 4))
def test_stored_states_give_the_actors_own_values_and_priorities(tmp_path, together):
    """Sequences from a real server, at the start of an episode, within it, and over its end in both ways."""
    batch = 40 * together
    agent = with_values(
        SMALL,
        {
            "batch_size": batch,
            "replay.min_size": 40 if together == 1 else 4,
            "replay.samples_per_insert": 8.0,
            "replay.priority_exponent": 1.0,
            "replay.sampled_together": together,
            "network.lstm_size": 8,
            "epsilon": 0.7,
            "epsilon_alpha": 0.0,
            "network.torso": "mlp",
            "frame_stack": 3,
        },
    )
    environment = GymnasiumBatch([Corridor((4, 5), 4, 6, np.arange(5) / 2) for _ in range(4)], [1, 2, 3, 4])
    layout = layout_of(environment.spec, envs_per_actor=4)
    agent.check(layout)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    layout = trace_layout(agent, layout, networks)
    server = start_server(agent.make_replay(layout).tables(), None, tmp_path)
    windows = agent.make_replay(layout).window_weights(lambda table, priorities: None)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"], windows=lambda shard, timeout: windows)
    policy = CompiledPolicy(agent.make_policy(networks, "train"), layout, np.arange(4), seed=1)
    actor = Actor(environment, policy, agent.make_replay(layout).writer(replay, 0))
    # Enough for 12 sequences of each environment: less than the limiter lets in.
    for _ in range(SMALL.burn_in + SMALL.trace_length + 1 + 11 * SMALL.period):
        actor.step()
        assert actor.writer.ready(60)
    actor.writer.close()
    assert actor.writer.items_written == (48 if together == 1 else 12)
    reader = BatchReader(
        lambda: Elements(agent.make_replay(layout).dataset(replay, tf.distribute.InputContext()).dataset), lambda: False
    )
    sample = next(reader)
    reader.close()
    server.stop()

    record, state = sample.record, sample.state
    assert state.frames == () and record.observation.shape == (11, batch, 4, 5, 3)
    q, _ = networks.online.unroll(*sequence_inputs(record, state), record.first)
    np.testing.assert_allclose(q[:-1], record.extras.q, rtol=1e-4, atol=1e-6)
    assert np.std(record.extras.q) > 0.01
    first, last, terminated = record.first.numpy(), record.last.numpy(), record.discount.numpy() == 0
    assert first[0].any() and not first[0].all() and first[1:].any() and last.any() and terminated.any()
    assert (last[:-1] & ~np.concatenate([terminated[:0], np.zeros((1, batch), bool), terminated[:-1]])).any()
    assert np.abs(state.core.hidden.numpy()[~first[0]]).max() > 0.1
    # An item's probability is its share of the priorities, which the actor has worked out.
    priority = agent.loss(networks, sample).priorities.numpy()
    np.testing.assert_allclose(
        priority / priority.mean(), sample.info.probability / np.mean(sample.info.probability), rtol=1e-3
    )
    assert np.std(priority) > 0.01 * np.mean(priority)


@pytest.mark.slow("daily")
def test_the_state_and_what_replay_keeps_of_it():
    agent = with_values(SMALL, {"frame_stack": 4, "network.torso": "mlp"})
    spec = EnvironmentSpec(dm_specs.BoundedArray((6, 6, 1), np.uint8, 0, 255), dm_specs.DiscreteArray(2, np.int64))
    layout = layout_of(spec)
    layout = trace_layout(agent, layout, agent.make_networks(layout))
    assert layout.state.frames.newest == {"": tf.TensorSpec((6, 6, 3), tf.uint8)}
    assert layout.state.previous_action == tf.TensorSpec((), tf.int64)
    (table,) = agent.make_replay(layout).tables()
    # The bytes of the core's two vectors and of the action, but no frames.
    assert table.info.signature.state.shape == (2 * LSTM * 4 + 8,)
    # One frame to each of 11 observations, and three before them.  The rest of a timestep: age, flags, action, reward,
    # discount, Q-values with the reward before, version.
    assert table.info.signature.rows.shape == (14, 6 * 6 + 4 + 2 + 8 + 4 + 4 + 12 + 8)


@pytest.mark.slow("daily")
def test_without_a_memory_there_is_no_state_but_the_previous_action():
    agent = with_values(SMALL, {"network.core": "none"})
    networks = agent.make_networks(layout_of())
    sample = random_sample(agent)
    sample = sample._replace(state=sample.state._replace(core=()))
    loss = agent.loss(networks, tree.map_structure(tf.constant, sample)).loss
    assert np.isfinite(float(loss))
    layout = trace_layout(agent, layout_of(), networks)
    assert [leaf.shape for leaf in tree.flatten(layout.state)] == [()]


# What is refused.


@pytest.mark.parametrize(
    ("fields", "layout", "message"),
    [
        ({}, dict(spec=SPEC._replace(action=dm_specs.BoundedArray((1,), np.float32, -1, 1))), "one discrete action"),
        ({"replay.size": 3, "replay.min_size": 2}, {}, "a replay of 3 items .* smaller than a batch of 4"),
        ({"replay.error_buffer": 5.0}, {}, "agent.replay.error_buffer of 5 cannot keep 32 samples per insert"),
        (dict(burn_in=-1), {}, "agent.burn_in must be a whole number of at least 0, not -1"),
        (dict(trace_length=0), {}, "agent.trace_length must be a whole number of at least 1"),
        (dict(period=0), {}, "agent.period must be a whole number of at least 1"),
        (dict(period=8), {}, r"agent.period must be at most agent.trace_length \(7\), not 8"),
        (dict(n_step=8), {}, r"agent.n_step must be at most agent.trace_length \(7\), not 8"),
        (dict(priority_eta=1.5), {}, "agent.priority_eta must be a number from 0 to 1"),
        (dict(target_update_period=0), {}, "agent.target_update_period must be a whole number of at least 1"),
        (dict(epsilon_alpha=-1.0), {}, "agent.epsilon_alpha must be a number of at least 0, not -1.0"),
        ({"network.lstm_size": 0}, {}, "agent.network.lstm_size must be a whole number from 1 to 65,536, not 0"),
        ({"network.stream_size": -1}, {}, "agent.network.stream_size must be a whole number of at least 0, not -1"),
        (
            {"network.hidden_sizes": (0,)},
            {},
            "agent.network.hidden_sizes must be a list of whole numbers from 1 to 65,536",
        ),
        (
            {"optimizer.learning_rate": 0.0},
            {},
            "agent.optimizer.learning_rate must be a number above 0 or a schedule .*, not 0.0",
        ),
        (dict(reward_clip=-1.0), {}, "agent.reward_clip must be a number above 0, a list .* or null, not -1.0"),
        (dict(frame_stack=4), {}, "set agent.frame_stack to 1"),
        (dict(), dict(replicas=3), "make agent.batch_size a multiple of 3"),
        # The fifth sequence of an environment ends with its 27th observation.
        (dict(), dict(max_steps=53), "53 in 2 environments make 8 sequences of 10 .* agent.replay.min_size is 10"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(fields, layout, message):
    SMALL.check(layout_of(max_steps=54))
    with pytest.raises(CallboardError, match=message) as raised:
        changed(SMALL, **fields).check(layout_of(**layout))
    assert "\n" not in str(raised.value)


# Updates, and a run of them.


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_a_step_gives_each_sequence_its_priority_and_updates_the_target_network_at_times():
    """What several replicas do with the same batch stands in `test_replicas.py`."""
    networks = SMALL.make_networks(layout_of())
    learner = SMALL.make_learner(networks, tf.distribute.get_strategy(), layout_of())
    target = weights_of(networks.target)
    np.testing.assert_array_equal(target, weights_of(networks.online))
    for step in range(1, 5):
        sample = tree.map_structure(tf.constant, random_sample(SMALL, seed=step))
        priorities = SMALL.loss(networks, sample).priorities
        update = learner.step(iter([sample]))
        np.testing.assert_array_equal(update.priorities.key, sample.info.key)
        np.testing.assert_array_equal(update.priorities.shard, sample.info.shard)
        # All weights are of step 7.
        assert float(update.metrics["policy_lag"]) == 0
        np.testing.assert_allclose(update.priorities.priority, priorities, rtol=1e-4)
        if step % SMALL.target_update_period == 0:
            target = weights_of(networks.online)
        np.testing.assert_array_equal(weights_of(networks.target), target)
        assert (np.abs(weights_of(networks.online) - target).max() > 0) == (step % SMALL.target_update_period != 0)


@pytest.mark.slow
def test_a_short_run_learns_and_ends_well(tmp_path):
    experiment = Experiment(
        agent=with_values(SMALL, {"replay.samples_per_insert": 1.0}),
        env="CartPole-v1",
        actors=2,
        envs_per_actor=2,
        evaluator=False,
        max_steps=200,
        run_dir=tmp_path / "run",
    )
    outcome = run(experiment, launcher="inline")
    assert outcome.exit_code == 0, outcome.error
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    # At least 36 sequences are each learned from once, 4 in a step; the limiter keeps 4 back.
    assert last["learner_steps"] >= (36 - 4) // 4
    assert 0 < last["learner/valid_fraction"] <= 1 and last["learner/gradient_norm"] > 0
