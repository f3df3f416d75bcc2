"""Nothing of what follows the end of an episode is learned from, by any agent of the table.

Batches hold episodes that end in every way: by termination, at a time limit, and with a lost final observation.
"""

import numpy as np
import pytest
import tensorflow as tf
import tree
from agent_cases import SMALL_UPDATES
from small_worlds import weights_of
from update_on_replicas import BATCH, begin, made, random_sample

from callboard.data import Sample
from callboard.transitions import valid_transitions

FAST = ("apex",)
AGENTS = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SMALL_UPDATES]


def begun_in_some(sample: Sample) -> Sample:
    """The sample with sequences of which every other one begins with an episode."""
    first = sample.record.first.copy()
    first[0] = np.arange(BATCH) % 2 == 0
    return sample._replace(record=sample.record._replace(first=first))


def with_other_numbers(sample: Sample) -> Sample:
    """The sample with other rewards and actions at transitions that are not valid, and states before episodes."""
    record = sample.record
    valid = valid_transitions(record.first, record.last, record.discount)
    assert 0 < valid.sum() < valid.size
    fresh = record.first[0]

    def other_state(leaf: np.ndarray) -> np.ndarray:
        where = fresh.reshape(-1, *[1] * (leaf.ndim - 1))
        return np.where(where, leaf + np.ones((), leaf.dtype), leaf) if leaf.dtype.kind == "f" else leaf

    def other_action(leaf: np.ndarray) -> np.ndarray:
        return np.where(valid.reshape(*valid.shape, *[1] * (leaf.ndim - 2)), leaf, leaf[::-1])

    reward = np.where(valid, record.reward, 7.0).astype(np.float32)
    changed = record._replace(reward=reward, action=tree.map_structure(other_action, record.action))
    return sample._replace(record=changed, state=tree.map_structure(other_state, sample.state))


def change_of_weights(name: str, other: bool) -> np.ndarray:
    agent, spec, length = made(name)
    networks, learner, layout = begin(agent, spec, tf.distribute.get_strategy(), None)
    sample = begun_in_some(random_sample(layout, length))
    before = weights_of(networks)
    learner.step(iter([with_other_numbers(sample) if other else sample]))
    return weights_of(networks) - before


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", AGENTS)
def test_an_update_does_not_depend_on_what_is_not_valid(name):
    change, with_other = change_of_weights(name, False), change_of_weights(name, True)
    assert np.linalg.norm(change) > 1e-4
    np.testing.assert_allclose(with_other, change, rtol=1e-4, atol=1e-6)
