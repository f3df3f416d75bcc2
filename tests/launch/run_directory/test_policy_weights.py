"""The weights of a policy: what is written is read again, and what does not fit or is damaged is refused by name."""

import os

import numpy as np
import pytest
import tensorflow as tf
from damages import empty, truncate

from callboard.agents.variables.finite_checks import NotFiniteError
from callboard.errors import CallboardError
from callboard.launch.run_directory.policy_weights import (
    assign_weights,
    load_weights,
    read_policy,
    save_policy,
    weights_by_name,
)


def policy(value, shape=(2, 3)):
    made = tf.Module()
    made.weights = [tf.Variable(np.full(shape, value, np.float32), name="weights")]
    return made


def test_weights_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "policy.npz"
    save_policy(path, policy(2.0), environment_steps=7)
    (name,) = weights_by_name(policy(0.0))
    saved = read_policy(path)
    assert saved.names == [name] and (saved.values[0] == 2).all() and int(saved.further["environment_steps"]) == 7
    other = policy(0.0)
    load_weights(path, other.variables)
    assert (weights_by_name(other)[name] == 2).all()
    with pytest.raises(NotFiniteError, match="is NaN"):
        save_policy(path, policy(np.nan))
    assert (read_policy(path).values[0] == 2).all()


def test_what_does_not_fit_is_refused_and_nothing_is_assigned(tmp_path):
    save_policy(tmp_path / "policy.npz", policy(2.0))
    with pytest.raises(CallboardError, match=r"was \(2, 3\) and is now \(3,\); continue with the settings of the run"):
        load_weights(tmp_path / "policy.npz", policy(0.0, (3,)).variables)
    changed = policy(0.0)
    (name,) = weights_by_name(changed)
    for weights, message in (
        ({"other": 1}, "unknown weight 'other'"),
        ({name: np.ones(3)}, r"must have the shape \(2, 3\), not \(3,\)"),
        ({name: np.full((2, 3), np.inf)}, "set finite weights"),
    ):
        with pytest.raises(CallboardError, match=message):
            assign_weights(changed, weights)
    assert (weights_by_name(changed)[name] == 0).all()


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "best.npz"
    save_policy(path, policy(1.0))
    for damaging in (truncate, empty):
        damaging(path)
        with pytest.raises(CallboardError, match="best.npz is damaged; replace it by a copy"):
            load_weights(path, policy(0.0).variables)


@pytest.mark.parametrize(
    ("weight", "reason"),
    [(np.nan, ": the weight w is NaN"), (-np.inf, ": the weight w is -?infinite"), ("x", ""), (1j, "")],
)
def test_weights_that_are_no_finite_numbers_are_refused(tmp_path, weight, reason):
    np.savez(tmp_path / "weights.npz", names=np.array(["w"]), weight_0000=np.array([0, weight]))
    with pytest.raises(CallboardError, match=f"weights.npz is damaged{reason}; replace it by a copy"):
        load_weights(tmp_path / "weights.npz", [tf.Variable([0.0, 0.0])])


def test_only_regular_files_without_compression_are_read(tmp_path):
    np.savez(tmp_path / "weights.npz", names=np.array(["w"]), weight_0000=np.zeros(3))
    assert read_policy(tmp_path / "weights.npz").values[0].shape == (3,)
    np.savez_compressed(tmp_path / "bomb.npz", names=np.array(["w"]), weight_0000=np.zeros(10**6))
    (tmp_path / "link.npz").symlink_to(tmp_path / "weights.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    np.savez(tmp_path / "pickled.npz", names=np.array(["w"]), weight_0000=np.array([{}], dtype=object))
    np.savez(tmp_path / "named.npz", names=np.array(["w"] * 10**4), weight_0000=np.zeros(3))
    np.savez(tmp_path / "nameless.npz", names=np.array("w"), weight_0000=np.zeros(3))
    for name in ("bomb", "link", "pipe", "pickled", "named", "nameless"):
        with pytest.raises(CallboardError, match=rf"{name}.npz is damaged"):
            read_policy(tmp_path / f"{name}.npz")
