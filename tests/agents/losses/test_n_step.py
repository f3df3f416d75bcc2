"""n-step returns against a loop that walks from transition to transition."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from episodes import is_experience, random_timesteps
from gpu_kernels import nodes_of, without_kernel

from callboard.agents.losses.n_step import n_step_sequence, n_step_window, take_along_time
from callboard.transitions import valid_transitions

GAMMA = 0.9
STEPS, BATCH = 12, 40


def random_sequences(seed, steps=STEPS):
    rng = np.random.default_rng(seed)
    timesteps = random_timesteps(rng, steps, BATCH)
    return rng.normal(size=(steps, BATCH)), timesteps


def walk(reward, timesteps, t, b, n):
    """The return from t, the discount of what comes after it, the observation reached, and the transitions walked."""
    first, last, discount = timesteps
    total, product, steps = 0.0, 1.0, 0
    while steps < n and t < len(reward) and is_experience(first, last, discount, t, b):
        total += product * reward[t, b]
        product *= GAMMA * discount[t, b]
        t, steps = t + 1, steps + 1
        if discount[t - 1, b] == 0:
            break
    return total, product, t, steps


def arguments(reward, timesteps):
    return dict(r_t=reward, discount_t=GAMMA * timesteps[2], valid_t=valid_transitions(*timesteps))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [1, 3, 5, STEPS, STEPS + 4])
def test_sequences_equal_the_walk(seed, n):
    reward, timesteps = random_sequences(seed)
    result = tree.map_structure(np.asarray, n_step_sequence(**arguments(reward, timesteps), n=n))
    assert result.returns.dtype == result.discount.dtype == np.float64 and result.index.dtype == np.int64
    lengths = set()
    for t in range(STEPS):
        for b in range(BATCH):
            total, product, index, steps = walk(reward, timesteps, t, b, n)
            np.testing.assert_allclose(result.returns[t, b], total, atol=1e-12)
            np.testing.assert_allclose(result.discount[t, b], product, atol=1e-12)
            assert result.index[t, b] == index and result.valid[t, b] == (steps > 0)
            lengths.add(steps)
    assert lengths >= set(range(min(n, 5) + 1)), "The sequences must hold ends at every distance."


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [1, 3, 5])
def test_windows_equal_the_walk(seed, n):
    reward, timesteps = random_sequences(seed, steps=n)
    result = tree.map_structure(np.asarray, n_step_window(**arguments(reward, timesteps)))
    assert result.returns.shape == result.index.shape == (BATCH,)
    for b in range(BATCH):
        total, product, index, steps = walk(reward, timesteps, 0, b, n)
        np.testing.assert_allclose(result.returns[b], total, atol=1e-12)
        np.testing.assert_allclose(result.discount[b], product, atol=1e-12)
        assert result.index[b] == index == steps and result.valid[b] == (steps > 0)


def test_by_hand():
    """Windows of three transitions with rewards 1, 2, 4 and gamma 1/2."""
    cases = [
        # discount, valid -> return, discount, index, valid
        ([0.5, 0.5, 0.5], [1, 1, 1], 1 + 1 + 1, 0.125, 3, True),  # whole
        ([0.5, 0.0, 0.5], [1, 1, 1], 1 + 1, 0.0, 2, True),  # terminated by the second action
        ([0.5, 0.5, 0.5], [1, 0, 1], 1, 0.5, 1, True),  # time limit at the second observation
        ([0.5, 0.5, 0.0], [1, 1, 1], 1 + 1 + 1, 0.0, 3, True),  # terminated by the last action
        ([0.0, 0.5, 0.5], [1, 1, 1], 1, 0.0, 1, True),
        ([0.5, 0.5, 0.5], [0, 1, 1], 0, 1.0, 0, False),  # nothing at all
    ]
    discount, is_valid, *expected = zip(*cases, strict=True)
    result = n_step_window(
        np.repeat([[1.0], [2.0], [4.0]], len(cases), axis=1), np.array(discount).T, np.array(is_valid, bool).T
    )
    for field, column in zip(result, expected, strict=True):
        np.testing.assert_array_equal(field, column)


def test_what_is_not_reached_cannot_spoil_the_rest():
    reward, timesteps = random_sequences(5)
    is_valid = valid_transitions(*timesteps)
    expected = n_step_sequence(reward, GAMMA * timesteps[2], is_valid, 4)
    spoilt = n_step_sequence(
        np.where(is_valid, reward, np.nan), np.where(is_valid, GAMMA * timesteps[2], np.nan), is_valid, 4
    )
    for one, other in zip(expected, spoilt, strict=True):
        np.testing.assert_array_equal(one, other)


def test_take_along_time():
    x = {"frame": np.arange(4 * 3 * 2).reshape(4, 3, 2), "flag": np.arange(12).reshape(4, 3)}
    index = np.array([3, 0, 2], np.int32)
    window = take_along_time(x, index)
    np.testing.assert_array_equal(window["frame"], [x["frame"][3, 0], x["frame"][0, 1], x["frame"][2, 2]])
    np.testing.assert_array_equal(window["flag"], [9, 1, 8])
    many = take_along_time(x, np.stack([index, index[::-1]]))
    assert many["frame"].shape == (2, 3, 2)
    np.testing.assert_array_equal(many["flag"], [[9, 1, 8], [6, 1, 11]])


def test_windows_are_read_on_a_gpu():
    @tf.function(autograph=False)
    def ends(observation, r_t, discount_t, valid_t):
        steps = n_step_window(r_t, discount_t, valid_t), n_step_sequence(r_t, discount_t, valid_t, 2)
        return [take_along_time(observation, one.index) for one in steps]

    numbers, flags = (tf.TensorSpec((3, None), dtype) for dtype in (tf.float32, tf.bool))
    graph = ends.get_concrete_function(tf.TensorSpec((4, None, 7, 7, 3), tf.uint8), numbers, numbers, flags)
    assert without_kernel(nodes_of(graph)) == set()


def test_float32_and_graphs_of_unknown_batch():
    reward, timesteps = random_sequences(1)
    spec = tf.TensorSpec((STEPS, None), tf.float32)
    in_graph = tf.function(
        lambda r_t, discount_t, valid_t: n_step_sequence(r_t, discount_t, valid_t, 3),
        input_signature=(spec, spec, tf.TensorSpec((STEPS, None), tf.bool)),
        autograph=False,
    )
    result = in_graph(
        reward.astype(np.float32), (GAMMA * timesteps[2]).astype(np.float32), valid_transitions(*timesteps)
    )
    assert result.returns.dtype == tf.float32
    np.testing.assert_allclose(result.returns, n_step_sequence(**arguments(reward, timesteps), n=3).returns, atol=1e-5)
    # The environment's discounts may come in another dtype than the rewards.
    assert (
        n_step_window(reward, timesteps[2].astype(np.float32), valid_transitions(*timesteps)).discount.dtype
        == tf.float64
    )


def test_wrong_arguments_are_named():
    reward, timesteps = random_sequences(0)
    with pytest.raises(ValueError, match="r_t .*discount_t"):
        n_step_window(reward[:-1], timesteps[2], valid_transitions(*timesteps))
    with pytest.raises(ValueError, match="r_t has shape"):
        n_step_window(reward[0], timesteps[2], valid_transitions(*timesteps))
    with pytest.raises(ValueError, match="at least 1, not 0"):
        n_step_sequence(**arguments(reward, timesteps), n=0)
