"""The best policy so far, and the one before it where it is damaged."""

import errno

import numpy as np
import pytest
import tensorflow as tf
from damages import DAMAGES

from callboard.launch.run_directory.best_policy import BestPolicy
from callboard.launch.run_directory.policy_weights import load_weights


def variables(value):
    return [tf.Variable(np.full((2, 3), value, np.float32), name="weights")]


def policy(value):
    made = tf.Module()
    made.weights = variables(value)
    return made


def save(best, value, learner_step):
    """Saves a policy of these weights as the best, with this return."""
    with best.draft(policy(value), value, learner_step):
        pass


@pytest.mark.parametrize("how", DAMAGES)
def test_the_best_policy_before_a_damaged_one_is_used(run, said, how):
    best = BestPolicy(run, said.append)
    assert best.path() is None and best.mean_return() == -np.inf
    for value in (1.0, 2.0):
        save(best, value, learner_step=10)
    assert best.mean_return() == 2.0
    DAMAGES[how](run.best_policy)
    assert best.mean_return() == 1.0
    weights = variables(0)
    load_weights(best.path(), weights)
    assert (weights[0].numpy() == 1).all()
    if how != "missing":
        assert said == ["the best policy best.npz is damaged and not used; it is kept as damaged-best.npz"]
    save(best, 3.0, learner_step=11)
    assert best.mean_return() == 3.0


def test_where_both_are_damaged_there_is_none(run, said):
    best = BestPolicy(run, said.append)
    for value in (1.0, 2.0):
        save(best, value, learner_step=10)
    for path in (run.best_policy, run.best_policy_before):
        DAMAGES["truncated"](path)
    assert best.path() is None and best.mean_return() == -np.inf
    assert len(said) == 2


def test_a_full_disk_leaves_the_best_policy_as_it_was(run, monkeypatch):
    best = BestPolicy(run)
    save(best, 1.0, learner_step=10)

    def full(*arguments, **fields):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("callboard.launch.run_directory.best_policy.write_weights", full)
    with pytest.raises(OSError, match="No space left"):
        save(best, 2.0, learner_step=11)
    assert best.mean_return() == 1.0
    assert not list(run.checkpoints.glob("draft-*"))
