"""What masks do to logits, action values and their means, against loops over single numbers."""

import numpy as np
import tensorflow as tf

from callboard.networks.actions.legal_actions import legal_actions, legal_mean, mask_illegal
from callboard.networks.distributions import Categorical
from callboard.networks.heads import DistributionalQHead, DuelingQHead

LEGAL = np.array([[True, False, True, True], [False, True, False, False]])
LOGITS = np.random.default_rng(0).normal(size=LEGAL.shape)


def softmax_over_legal(logits, legal):
    weights = np.array([np.exp(logit) if allowed else 0.0 for logit, allowed in zip(logits, legal, strict=True)])
    return weights / weights.sum()


def test_legal_actions_are_those_of_the_mask():
    observation = {"observation": tf.zeros((3, 2)), "action_mask": tf.constant([[0, 1], [1, 1], [0, 0]], tf.int8)}
    np.testing.assert_array_equal(legal_actions(observation), [[False, True], [True, True], [True, True]])
    floats = {"action_mask": tf.constant([[[0.0, 1.0]]]), "seen": tf.zeros((1, 1))}
    np.testing.assert_array_equal(legal_actions(floats), [[[False, True]]])
    assert legal_actions(tf.zeros((3, 2))) is None and legal_actions({"seen": tf.zeros((3, 2))}) is None


def test_a_masked_policy_is_a_softmax_over_the_legal_actions():
    policy = Categorical(mask_illegal(LOGITS, LEGAL))
    other = Categorical(mask_illegal(LOGITS[:, ::-1].copy(), LEGAL))
    for row, legal in enumerate(LEGAL):
        p, q = softmax_over_legal(LOGITS[row], legal), softmax_over_legal(LOGITS[row, ::-1], legal)
        np.testing.assert_allclose(np.exp(policy.log_probs()[row]), p, rtol=1e-12)
        kept = np.flatnonzero(legal)
        np.testing.assert_allclose(policy.entropy()[row], -sum(p[a] * np.log(p[a]) for a in kept), rtol=1e-12)
        expected = sum(p[a] * np.log(p[a] / q[a]) for a in kept)
        np.testing.assert_allclose(policy.kl(other)[row], expected, atol=1e-12)
        for action in kept:
            np.testing.assert_allclose(policy.log_prob(np.full(2, action))[row], np.log(p[action]), rtol=1e-12)
    many = Categorical(mask_illegal(np.tile(LOGITS, (500, 1)), np.tile(LEGAL, (500, 1))))
    assert np.tile(LEGAL, (500, 1))[np.arange(1000), many.sample((1, 2)).numpy()].all()
    assert LEGAL[np.arange(2), policy.mode().numpy()].all()


def test_no_gradient_reaches_what_is_masked():
    for dtype in (tf.float16, tf.float32, tf.float64):
        logits = tf.constant(LOGITS, dtype)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            policy = Categorical(mask_illegal(logits, LEGAL))
            loss = policy.log_prob([0, 1]) + policy.entropy() + policy.kl(Categorical(policy.logits + 1))
            loss += tf.reduce_sum(legal_mean(tf.square(logits), LEGAL), axis=-1)
        gradient = tape.gradient(loss, logits).numpy()
        assert np.isfinite(gradient).all() and np.isfinite(loss).all()
        assert not gradient[~LEGAL].any() and gradient[0][LEGAL[0]].all()


def test_all_is_as_without_a_mask_where_everything_is_legal():
    everything = np.ones_like(LEGAL)
    assert mask_illegal(LOGITS, None) is LOGITS
    np.testing.assert_array_equal(mask_illegal(LOGITS, everything), LOGITS)
    np.testing.assert_allclose(legal_mean(tf.constant(LOGITS), everything), legal_mean(tf.constant(LOGITS), None))


def test_dueling_subtracts_the_mean_of_legal_advantages():
    features = tf.random.stateless_normal((2, 3), seed=(1, 2))
    for head in (DuelingQHead(4), DistributionalQHead(4, atoms=5)):
        free, masked = head(features).numpy(), head(features, tf.constant(LEGAL)).numpy()
        for row, legal in enumerate(LEGAL):
            value = sum(free[row]) / 4
            mean = sum(free[row][a] for a in np.flatnonzero(legal)) / legal.sum()
            np.testing.assert_allclose(masked[row], free[row] - mean + value, atol=1e-6)
