"""Double Q-learning targets, errors and losses against loops written from the papers."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from episodes import is_experience, random_timesteps

from callboard.agents.losses.n_step import n_step_window, take_along_time
from callboard.agents.losses.q_learning import (
    action_value,
    double_q_target,
    double_q_value,
    sequence_double_q_targets,
    td_error,
    td_loss,
)
from callboard.transitions import valid_transitions

GAMMA = 0.9
STEPS, BATCH, ACTIONS = 11, 30, 4


def random_sequences(seed, steps=STEPS):
    rng = np.random.default_rng(seed)
    q_online, q_target = (10 * rng.normal(size=(steps + 1, BATCH, ACTIONS)) for _ in range(2))
    return q_online, q_target, 5 * rng.normal(size=(steps, BATCH)), random_timesteps(rng, steps, BATCH)


def h(x, epsilon):
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + epsilon * x


def h_inverse(x, epsilon):
    return np.sign(x) * (((np.sqrt(1 + 4 * epsilon * (abs(x) + 1 + epsilon)) - 1) / (2 * epsilon)) ** 2 - 1)


def target_by_the_paper(q_online, q_target, reward, timesteps, t, b, n, epsilon=None):
    """G_t = R_{t+1} + .. + gamma^{n-1} R_{t+n} + gamma^n Q(S_{t+n}, argmax), cut short where experience ends."""
    first, last, discount = timesteps
    target, k = 0.0, 0
    while k < n and t + k < len(reward) and is_experience(first, last, discount, t + k, b):
        target += GAMMA**k * reward[t + k, b]
        k += 1
        if discount[t + k - 1, b] == 0:
            return target if epsilon is None else h(target, epsilon)
    best = max(range(ACTIONS), key=lambda action: q_online[t + k, b, action])
    value = q_target[t + k, b, best]
    if epsilon is None:
        return target + GAMMA**k * value
    return h(target + GAMMA**k * h_inverse(value, epsilon), epsilon)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n", [1, 5, STEPS])
@pytest.mark.parametrize("epsilon", [None, 1e-3])
def test_sequences(seed, n, epsilon):
    q_online, q_target, reward, timesteps = random_sequences(seed)
    is_valid = valid_transitions(*timesteps)
    assert (~is_valid).any() and (is_valid & (timesteps[2] == 0)).any(), "The sequences must hold both kinds of ends."
    result = sequence_double_q_targets(q_online, q_target, reward, GAMMA * timesteps[2], is_valid, n, epsilon).numpy()
    assert result.dtype == np.float64
    for t in range(STEPS):
        for b in range(BATCH):
            if is_valid[t, b]:
                expected = target_by_the_paper(q_online, q_target, reward, timesteps, t, b, n, epsilon)
                np.testing.assert_allclose(result[t, b], expected, atol=1e-5, rtol=1e-9)


@pytest.mark.parametrize("n", [1, 3])
def test_windows(n):
    """As an agent does it: the networks see only the first observation and the one to bootstrap from."""
    q_online, q_target, reward, timesteps = random_sequences(3, steps=n)
    steps = n_step_window(reward, GAMMA * timesteps[2], valid_transitions(*timesteps))
    online_n, target_n = take_along_time((q_online, q_target), steps.index)
    action = np.random.default_rng(0).integers(ACTIONS, size=BATCH)
    delta = td_error(q_online[0], action, double_q_target(steps, online_n, target_n), steps.valid).numpy()
    for b in range(BATCH):
        expected = 0.0
        if is_experience(*timesteps, 0, b):
            target = target_by_the_paper(q_online, q_target, reward, timesteps, 0, b, n)
            expected = target - q_online[0, b, action[b]]
        np.testing.assert_allclose(delta[b], expected, atol=1e-10)


def test_the_online_network_chooses_and_the_target_network_values():
    q_online, q_target = np.array([[1.0, 3.0, 2.0], [9.0, 0.0, 0.0]]), np.array([[5.0, -1.0, 7.0], [2.0, 8.0, 8.0]])
    np.testing.assert_array_equal(double_q_value(q_online, q_target), [-1.0, 2.0])
    np.testing.assert_array_equal(action_value(q_target, np.array([2, 0])), [7.0, 2.0])
    np.testing.assert_array_equal(action_value(q_target[np.newaxis], np.array([[1, 1]])), [[-1.0, 8.0]])


@pytest.mark.parametrize("epsilon", [None, 1e-3])
@pytest.mark.parametrize("nonsense", [np.inf, np.nan])
def test_nothing_flows_from_after_a_termination(epsilon, nonsense):
    """The observation after it may be of another episode, or a filling: its values may be anything."""
    q = np.ones((4, 1, ACTIONS))
    spoilt = np.array(q)
    spoilt[2] = nonsense
    discount = np.array([[0.9], [0.0], [0.9]])
    arguments = np.ones((3, 1)), discount, np.ones((3, 1), bool), 2, epsilon
    result = sequence_double_q_targets(q, spoilt, *arguments)
    np.testing.assert_array_equal(result, sequence_double_q_targets(q, q, *arguments))


def test_gradients():
    """Only Q(x, a) of valid transitions is moved: by -delta times the weight, clipped at the Huber border."""
    q = tf.Variable(np.zeros((2, 2, 3)))
    action, target = np.array([[0, 1], [2, 2]]), tf.Variable([[0.5, 3.0], [-4.0, 7.0]], dtype=tf.float64)
    is_valid, weight = np.array([[True, True], [True, False]]), tf.Variable([2.0, 0.5], dtype=tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        delta = td_error(q, action, target, is_valid)
        squared, huber = td_loss(delta, weight), td_loss(delta, weight, huber=1.0)
    np.testing.assert_allclose(delta, [[0.5, 3.0], [-4.0, 0.0]])
    np.testing.assert_allclose(squared, [[2 * 0.125, 0.5 * 4.5], [2 * 8.0, 0.0]])
    np.testing.assert_allclose(huber, [[2 * 0.125, 0.5 * 2.5], [2 * 3.5, 0.0]])

    def only(*numbers):
        expected = np.zeros((2, 2, 3))
        for (t, b), number in zip(((0, 0), (0, 1), (1, 0)), numbers, strict=True):
            expected[t, b, action[t, b]] = number
        return expected

    np.testing.assert_allclose(tape.gradient(squared, q), only(-1.0, -1.5, 8.0))
    np.testing.assert_allclose(tape.gradient(huber, q), only(-1.0, -0.5, 2.0))
    assert tape.gradient(squared, [target, weight]) == [None, None]


def test_no_gradients_flow_through_targets():
    q_online, q_target, reward, timesteps = random_sequences(2)
    q_online, q_target = tf.constant(q_online), tf.constant(q_target)
    with tf.GradientTape() as tape:
        tape.watch([q_online, q_target])
        targets = sequence_double_q_targets(
            q_online, q_target, reward, GAMMA * timesteps[2], valid_transitions(*timesteps), 3, 1e-3
        )
    assert tape.gradient(targets, [q_online, q_target]) == [None, None]


def test_huber_of_windows_by_hand():
    delta = np.array([-3.0, 0.5, 2.0], np.float32)
    loss = td_loss(delta, huber=2.0)
    assert loss.dtype == tf.float32
    np.testing.assert_allclose(loss, [2 * (3 - 1), 0.125, 2.0])
    np.testing.assert_allclose(td_loss(delta), [4.5, 0.125, 2.0])


def test_in_graphs():
    q_online, q_target, reward, timesteps = random_sequences(1)
    spec = [
        tf.TensorSpec((length, None, *rest), dtype)
        for length, rest, dtype in [
            (STEPS + 1, (ACTIONS,), tf.float32),
            (STEPS + 1, (ACTIONS,), tf.float32),
            (STEPS, (), tf.float32),
            (STEPS, (), tf.float32),
            (STEPS, (), tf.bool),
        ]
    ]
    rescaled = functools.partial(sequence_double_q_targets, n=5, epsilon=1e-3)
    compiled = tf.function(lambda *tensors: rescaled(*tensors), input_signature=spec, autograph=False)
    floats = [array.astype(np.float32) for array in (q_online, q_target, reward, GAMMA * timesteps[2])]
    expected = sequence_double_q_targets(
        q_online, q_target, reward, GAMMA * timesteps[2], valid_transitions(*timesteps), 5, 1e-3
    )
    np.testing.assert_allclose(compiled(*floats, valid_transitions(*timesteps)), expected, atol=1e-3)


def test_wrong_shapes_are_named():
    q_online, q_target, reward, timesteps = random_sequences(0)
    with pytest.raises(ValueError, match="q_tm1"):
        sequence_double_q_targets(q_online[:-1], q_target[:-1], reward, timesteps[2], valid_transitions(*timesteps), 3)
    with pytest.raises(ValueError, match="q_online .*q_target"):
        double_q_value(q_online, q_target[..., :2])
    with pytest.raises(ValueError, match="action"):
        td_error(q_online, np.zeros((2, 2), np.int32), reward, valid_transitions(*timesteps))
    with pytest.raises(ValueError, match="weight"):
        td_loss(reward, weight=np.ones(STEPS))
    with pytest.raises(ValueError, match="weight has shape"):
        td_loss(reward[0], weight=np.ones((BATCH, 1)))


# Several choices.


@pytest.mark.slow("daily")
@pytest.mark.parametrize("epsilon", [None, 1e-3])
def test_all_choices_have_one_target_and_each_an_error_of_its_own(epsilon):
    rng, choices, n = np.random.default_rng(3), 3, 4
    q_online, q_target = (10 * rng.normal(size=(STEPS + 1, BATCH, choices, ACTIONS)) for _ in range(2))
    reward, timesteps = 5 * rng.normal(size=(STEPS, BATCH)), random_timesteps(rng, STEPS, BATCH)
    first, last, discount = timesteps
    valid_t, action = valid_transitions(*timesteps), rng.integers(ACTIONS, size=(STEPS, BATCH, choices))
    targets = sequence_double_q_targets(q_online, q_target, reward, GAMMA * discount, valid_t, n, epsilon)
    delta = td_error(q_online[:-1], action, targets, valid_t)
    weight = rng.uniform(size=BATCH)
    loss = td_loss(delta, weight, huber=2.0, composed=True)
    assert targets.shape == loss.shape == (STEPS, BATCH) and delta.shape == (STEPS, BATCH, choices)
    # The target is that of a single choice with the mean of the best values, each chosen by the online network.
    best = np.zeros((STEPS + 1, BATCH, ACTIONS))
    for t, b in np.ndindex(STEPS + 1, BATCH):
        best[t, b] = np.mean([q_target[t, b, k, np.argmax(q_online[t, b, k])] for k in range(choices)])
    for t, b in np.ndindex(STEPS, BATCH):
        if not valid_t[t, b]:
            assert not delta[t, b].numpy().any() and loss[t, b] == 0
            continue
        target = target_by_the_paper(np.zeros_like(best), best, reward, timesteps, t, b, n, epsilon)
        np.testing.assert_allclose(targets[t, b], target, rtol=1e-9)
        total = 0.0
        for k in range(choices):
            error = target - q_online[t, b, k, action[t, b, k]]
            np.testing.assert_allclose(delta[t, b, k], error, rtol=1e-9)
            total += error**2 / 2 if abs(error) <= 2 else 2 * (abs(error) - 1)
        np.testing.assert_allclose(loss[t, b], weight[b] * total / choices, rtol=1e-9)
