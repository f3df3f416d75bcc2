"""Heads for composed actions: shapes, variables, and which parts see which."""

import numpy as np
import pytest
import tensorflow as tf
from composed_actions import ACTIONS

from callboard.networks.actions.action_parts import ActionParts
from callboard.networks.heads.composed_heads import AutoregressiveValueHead, ComposedValueHead
from callboard.networks.torsos.dense import Layers

FEATURES = tf.random.stateless_normal((5, 4), seed=(1, 2))


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ACTIONS)
def test_outputs_of_independent_parts(name):
    parts = ActionParts(ACTIONS[name])
    outputs = ComposedValueHead(parts, Layers((6,)), initial_log_std=-1.0)(FEATURES)
    assert outputs.value.shape == (5,)
    assert outputs.logits == () if not len(parts.sizes) else outputs.logits.shape == (5, parts.sizes.sum())
    if parts.numbers:
        assert outputs.mean.shape == (5, parts.numbers)
        np.testing.assert_array_equal(outputs.log_std, np.full((5, parts.numbers), -1.0))
    else:
        assert outputs.mean == outputs.log_std == ()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("make", [ComposedValueHead, AutoregressiveValueHead])
def test_the_value_is_there_if_wanted(make):
    parts = ActionParts(ACTIONS["nest"])
    head, without = (make(parts, Layers((6,)), with_value) for with_value in (True, False))
    assert head(FEATURES).value.shape == (5,) and without(FEATURES).value == ()
    assert len(head.value_variables) == 4 and without.value_variables == ()
    assert len(head.trainable_variables) == len(without.trainable_variables) + 4


def test_all_variables_are_there_after_the_first_call():
    head = AutoregressiveValueHead(ActionParts(ACTIONS["nest"]), std_from_features=True)
    head(FEATURES[:1])
    # Each part has a hidden layer and a linear one, and the value a linear one.
    assert len(head.trainable_variables) == 4 * 4 + 2
    head(FEATURES)
    assert len(head.trainable_variables) == 4 * 4 + 2


def test_each_part_sees_those_before_it():
    head = AutoregressiveValueHead(ActionParts(ACTIONS["nest"]), Layers((8,)))
    head(FEATURES[:1])
    for variable in head.trainable_variables:
        variable.assign(tf.random.stateless_normal(variable.shape, seed=(3, 4)))
    before = [tf.one_hot(tf.zeros(5, tf.int32), size) for size in (3, 2, 4)]
    others = [tf.one_hot(tf.ones(5, tf.int32), size) for size in (3, 2, 4)]
    for index, field in ((1, "logits"), (2, "logits"), (3, "mean")):
        policy = head.part(index, FEATURES, before[:index])
        for changed in range(index):
            seen = [*before[:changed], others[changed], *before[changed + 1 : index]]
            other = head.part(index, FEATURES, seen)
            assert np.abs(getattr(policy, field) - getattr(other, field)).min() > 0
