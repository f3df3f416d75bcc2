"""V-trace against sums written straight from the paper, and numbers worked by hand."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.vtrace import vtrace
from callboard.transitions import valid_transitions

GAMMA = 0.9


def episodes(rng, steps, batch):
    """Timesteps of random episodes of both kinds of environment: half show final observations, half reset in the
    step.
    """
    first = np.zeros((steps + 1, batch), bool)
    last = np.zeros((steps + 1, batch), bool)
    discount = np.ones((steps, batch))
    for b in range(batch):
        shows_the_end = b % 2 == 0
        first[0, b] = rng.random() < 0.5
        for t in range(steps):
            if last[t, b]:
                first[t + 1, b] = True
            elif rng.random() < 0.35:  # The episode ends: by termination or by a time limit.
                discount[t, b] = float(rng.random() < 0.5)
                (last if shows_the_end else first)[t + 1, b] = True
    return first, last, discount


def random_sequences(seed, steps=9, batch=24):
    rng = np.random.default_rng(seed)
    first, last, discount = episodes(rng, steps, batch)
    return dict(
        values=rng.normal(size=(steps + 1, batch)),
        r_t=rng.normal(size=(steps, batch)),
        log_rho_t=rng.normal(size=(steps, batch)),
        discount_t=GAMMA * discount,
        valid_t=valid_transitions(first, last, discount),
    )


def vtrace_sums(values, r_t, log_rho_t, discount_t, valid_t, bars, lambda_, weighted=True):
    """Equation (1) as it stands: for each start s a sum over t of discounts times a product of c_i times delta_t V."""
    rho_bar, c_bar, pg_rho_bar = bars
    steps, batch = r_t.shape
    ratio = np.exp(log_rho_t)
    vs = np.array(values)
    for b in range(batch):
        for s in range(steps):
            for t in range(s, steps):
                if not valid_t[s : t + 1, b].all():
                    break
                gammas = np.prod([discount_t[i, b] for i in range(s, t)])
                cs = np.prod([lambda_ * min(c_bar, ratio[i, b]) for i in range(s, t)])
                rho = min(rho_bar, ratio[t, b])
                delta = rho * (r_t[t, b] + discount_t[t, b] * values[t + 1, b] - values[t, b])
                vs[s, b] += gammas * cs * delta
    advantages = np.zeros_like(r_t)
    for b in range(batch):
        for s in range(steps):
            if valid_t[s, b]:
                q = r_t[s, b] + discount_t[s, b] * vs[s + 1, b]
                advantages[s, b] = (min(pg_rho_bar, ratio[s, b]) if weighted else 1.0) * (q - values[s, b])
    return vs[:-1], advantages


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("rho_bar", "c_bar", "pg_rho_bar", "lambda_"), [(1.0, 1.0, 1.0, 1.0), (2.0, 1.3, 0.7, 0.8), (None, None, None, 1.0)]
)
def test_equals_the_double_sum(seed, rho_bar, c_bar, pg_rho_bar, lambda_):
    sequences = random_sequences(seed)
    discount, is_valid = sequences["discount_t"], sequences["valid_t"]
    assert (~is_valid).any() and (is_valid & (discount == 0)).any(), "The sequences must hold both kinds of ends."

    result = vtrace(**sequences, clip_rho=rho_bar, clip_c=c_bar, clip_policy_gradient_rho=pg_rho_bar, lambda_=lambda_)
    bars = [np.inf if bar is None else bar for bar in (rho_bar, c_bar, pg_rho_bar)]
    vs, advantages = vtrace_sums(**sequences, bars=bars, lambda_=lambda_)
    assert result.vs.dtype == tf.float64
    np.testing.assert_allclose(result.vs, vs, atol=1e-10)
    np.testing.assert_allclose(result.advantages, advantages, atol=1e-10)
    _, unweighted = vtrace_sums(**sequences, bars=bars, lambda_=lambda_, weighted=False)
    np.testing.assert_allclose(result.td_errors, unweighted, atol=1e-10)


def test_on_policy_it_is_the_n_step_return():
    """With equal policies v_s is the discounted rewards to the end of the episode or sequence, and V there."""
    sequences = random_sequences(7)
    sequences["log_rho_t"] = np.zeros_like(sequences["log_rho_t"])
    result = vtrace(**sequences, clip_rho=None, clip_c=None, clip_policy_gradient_rho=None)

    steps, batch = sequences["r_t"].shape
    returns = np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            gamma, t = 1.0, s
            while t < steps and sequences["valid_t"][t, b]:
                returns[s, b] += gamma * sequences["r_t"][t, b]
                gamma *= sequences["discount_t"][t, b]
                t += 1
            returns[s, b] += gamma * sequences["values"][t, b]
    np.testing.assert_allclose(result.vs, returns, atol=1e-10)
    # And the advantage is that return less the value, where there is anything to learn.
    expected = np.where(sequences["valid_t"], returns - sequences["values"][:-1], 0)
    np.testing.assert_allclose(result.advantages, expected, atol=1e-10)


def column(*numbers):
    return np.array(numbers, np.float64)[:, np.newaxis]


def test_by_hand():
    """Ratios 2, 1/2 and 1, gamma 1/2, all clipped at 1; then the same with a time limit after the first step."""
    sequence = dict(
        values=column(1, 2, 3, 4),
        r_t=column(1, 2, 3),
        discount_t=column(0.5, 0.5, 0.5),
        log_rho_t=np.log(column(2, 0.5, 1)),
    )
    # delta: 1 (1 + 1 - 1) = 1; 0.5 (2 + 1.5 - 2) = 0.75; 1 (3 + 2 - 3) = 2.
    # v_2 = 3 + 2 = 5; v_1 = 2 + 0.75 + 0.5 * 0.5 * 2 = 3.25; v_0 = 1 + 1 + 0.5 * 1 * 1.25 = 2.625.
    # advantages: 1 (1 + 1.625 - 1) = 1.625; 0.5 (2 + 2.5 - 2) = 1.25; 1 (3 + 2 - 3) = 2.
    result = vtrace(**sequence, valid_t=column(1, 1, 1).astype(bool))
    np.testing.assert_allclose(result.vs, column(2.625, 3.25, 5))
    np.testing.assert_allclose(result.advantages, column(1.625, 1.25, 2))
    # The middle transition joins two episodes: v_1 is V(x_1), and v_0 = 1 + 1 + 0.
    result = vtrace(**sequence, valid_t=column(1, 0, 1).astype(bool))
    np.testing.assert_allclose(result.vs, column(2, 2, 5))
    np.testing.assert_allclose(result.advantages, column(1, 0, 2))


def test_what_does_not_count_cannot_spoil_the_rest():
    """An ignored action may carry anything, even a ratio that overflows."""
    sequence = random_sequences(3)
    expected = vtrace(**sequence, clip_c=None, clip_rho=None)
    for name in ("r_t", "log_rho_t"):
        sequence[name] = np.where(sequence["valid_t"], sequence[name], 1000.0)
    result = vtrace(**sequence, clip_c=None, clip_rho=None)
    np.testing.assert_allclose(result.vs, expected.vs)
    np.testing.assert_allclose(result.advantages, expected.advantages)


def test_no_gradients_flow():
    sequence = {name: tf.constant(value) for name, value in random_sequences(1).items()}
    with tf.GradientTape() as tape:
        tape.watch([sequence["values"], sequence["log_rho_t"]])
        result = vtrace(**sequence)
        total = tf.reduce_sum(result.vs) + tf.reduce_sum(result.advantages)
    assert tape.gradient(total, [sequence["values"], sequence["log_rho_t"]]) == [None, None]


@pytest.mark.slow("daily")
def test_dtype_and_graph():
    sequence = random_sequences(2)
    graph = tf.function(vtrace)(**{name: tf.constant(value) for name, value in sequence.items()})
    floats = {name: value if name == "valid_t" else value.astype(np.float32) for name, value in sequence.items()}
    result = vtrace(**floats)
    assert result.vs.dtype == result.advantages.dtype == tf.float32
    np.testing.assert_allclose(result.vs, graph.vs, atol=1e-4)


def test_wrong_shapes_are_named():
    sequence = random_sequences(0)
    with pytest.raises(ValueError, match="v_t .*r_t"):
        vtrace(**{**sequence, "values": sequence["values"][:-1]})
    with pytest.raises(ValueError, match="r_t has shape"):
        vtrace(**{**sequence, "r_t": sequence["r_t"][0]})
