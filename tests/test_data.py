"""Shared data types: who feeds whom, the column of versions, and nests that are made again from their leaves."""

import numpy as np
import pytest
import tree

from callboard.data import Layout, Record, Sample, Timestep, Update, Version, rebuilt, version_column


def layout(shards=1, **sizes):
    return Layout(None, envs_per_actor=2, actors=5, shards=shards, replicas=1, seed=1, max_steps=100, **sizes)


def test_actors_are_shared_evenly_by_shards_and_learners():
    sizes = layout(shards=2, learners=3)
    assert [sizes.shard_of(actor) for actor in range(5)] == [0, 1, 0, 1, 0]
    assert [sizes.learner_of(actor) for actor in range(5)] == [0, 1, 2, 0, 1]


def test_a_run_has_one_learner_by_default():
    assert {layout().learner_of(actor) for actor in range(5)} == {0}
    assert {layout().shard_of(actor) for actor in range(5)} == {0}


def test_the_column_of_a_version_is_the_same_for_all_environments():
    column = version_column(Version(incarnation=3, step=70_000), 4)
    assert column.dtype == np.int32
    np.testing.assert_array_equal(column, [[3, 70_000]] * 4)


def test_timesteps_share_a_column_that_cannot_be_changed():
    column = version_column(Version(0, 1), 2)
    assert version_column(Version(0, 1), 2) is column
    assert version_column(Version(0, 2), 2) is not column and version_column(Version(0, 1), 3) is not column
    with pytest.raises(ValueError, match="read-only"):
        column[0, 0] = 5


NESTS = {
    "a leaf": 1,
    "no leaf": (),
    "a tuple": (1, (2, ()), 3),
    "a list": [1, [2, 3]],
    "a dictionary in another order": {"b": 1, "a": (2, 3), "c": {}},
    "named tuples": Timestep({"eye": 1, "body": [2]}, 3, 4, 5, 6),
    "all of them": {"z": Record(1, 2, 3, {"y": 4, "x": 5}, 6, 7, Version(8, 9), [10, ()]), "a": (11,)},
}


@pytest.mark.parametrize("name", NESTS)
def test_a_nest_is_rebuilt_as_by_tree(name):
    structure = NESTS[name]
    leaves = [f"leaf {number}" for number in range(len(tree.flatten(structure)))]
    found, expected = rebuilt(structure, iter(leaves)), tree.unflatten_as(structure, leaves)
    assert found == expected
    tree.assert_same_structure(found, expected, check_types=True)


def test_only_the_leaves_of_the_nest_are_taken():
    leaves = iter(range(5))
    assert rebuilt({"b": 0, "a": (0, 0)}, leaves) == {"b": 2, "a": (0, 1)}
    assert list(leaves) == [3, 4]


def test_what_samples_and_updates_hold_by_default():
    assert Sample(record=None, state=()).info == ()
    assert Update(metrics={}) == Update(metrics={}, priorities=None, steps=1, finite=())
