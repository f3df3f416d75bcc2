"""Values of several choices: a shared value, and advantages of each branch."""

import numpy as np
import pytest
import tensorflow as tf
from composed_actions import ACTIONS, random_mask

from callboard.networks.actions.action_parts import ActionParts
from callboard.networks.heads.branching_heads import BranchingQHead
from callboard.networks.torsos.dense import Layers

PARTS = ActionParts(ACTIONS["multi-discrete"])
FEATURES = tf.random.stateless_normal((5, 3), seed=(1, 2))


@pytest.mark.parametrize("sizes", [(), (6,)])
def test_the_advantages_of_a_branch_have_a_mean_of_zero(sizes):
    head = BranchingQHead(PARTS, Layers(sizes))
    q, value = head(FEATURES).numpy(), head._value(FEATURES).numpy()
    assert q.shape == (5, 3, 4)
    for k, size in enumerate(PARTS.sizes):
        np.testing.assert_allclose(q[:, k, :size].mean(axis=-1), value[:, 0], atol=1e-5)
        advantage = head._branches[k](FEATURES).numpy()
        expected = value + advantage - advantage.mean(axis=-1, keepdims=True)
        np.testing.assert_allclose(q[:, k, :size], expected, atol=1e-5)
    assert len(head.trainable_variables) == (1 + 3) * (4 if sizes else 2)


def test_the_mean_is_that_of_legal_values():
    head, mask = BranchingQHead(PARTS), random_mask(np.random.default_rng(0), PARTS.sizes, 5)
    q, value = head(FEATURES, tf.constant(mask, tf.bool)).numpy(), head._value(FEATURES).numpy()
    starts = np.cumsum(PARTS.sizes) - PARTS.sizes
    for row in range(5):
        for k, (start, size) in enumerate(zip(starts, PARTS.sizes, strict=True)):
            legal = [q[row, k, a] for a in range(size) if mask[row, start + a]]
            np.testing.assert_allclose(sum(legal) / len(legal), value[row, 0], atol=1e-5)


def test_without_dueling_each_branch_outputs_its_values():
    head = BranchingQHead(PARTS, dueling=False)
    np.testing.assert_array_equal(head(FEATURES)[:, 1], head._branches[1](FEATURES))
    assert len(head.trainable_variables) == 3 * 2
