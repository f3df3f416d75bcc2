"""Columns of chosen infos: values that are missing, of every kind, and those that cannot be recorded."""

import numpy as np
import pytest

from callboard.environments.recorded.chosen_infos import InfoColumns
from callboard.errors import CallboardError

ARRAY = np.arange(2, dtype=np.uint8)


@pytest.mark.parametrize(
    "values, wanted",
    [
        ([1.5, 2.5], np.array([1.5, 2.5])),
        ([True, False], np.array([True, False])),
        ([3, 4], np.array([3, 4])),
        ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
        ([np.array(1, np.int8), 300], np.array([1, 300])),
        ([None, True], np.array([np.nan, 1], np.float32)),
        ([2, None, 2**40], np.array([2, np.nan, 2**40])),
        ([None, None], np.array([np.nan, np.nan], np.float32)),
        ([ARRAY, ARRAY], np.stack([ARRAY, ARRAY])),
        ([None, ARRAY], np.array([[np.nan, np.nan], [0, 1]], np.float32)),
        ([[1, 2], (3.5, 4)], np.array([[1, 2], [3.5, 4]])),
        (["a", "bc"], np.array(["a", "bc"])),
        ([None, "bc"], np.array(["", "bc"])),
    ],
)
def test_values_of_a_kind_become_a_column(values, wanted):
    column = InfoColumns(["x"], "Maze-v0").column("x", values)
    assert column.dtype == wanted.dtype
    np.testing.assert_array_equal(column, wanted)


def test_an_info_that_is_missing_in_a_whole_episode_has_the_form_that_it_had_before():
    columns = InfoColumns(["x", "y"], "Maze-v0")
    columns.column("x", [ARRAY, ARRAY])
    columns.column("y", ["a"])
    np.testing.assert_array_equal(columns.column("x", [None]), [[np.nan, np.nan]])
    assert columns.column("y", [None]).tolist() == [""]


@pytest.mark.parametrize(
    "values, says",
    [
        ([ARRAY, np.zeros(3)], r"'x' of Maze-v0 is an array of shape \(2,\) in one timestep, and .* \(3,\) in another"),
        ([1.0, ARRAY], r"is a number in one timestep, and an array of shape \(2,\) in another, which cannot be"),
        (["a", 1.0], "is text in one timestep, and a number in another"),
        ([{"r": 1}], "'x' of Maze-v0 is of type dict, not a number, .*: name its parts, such as x.r, or leave it out"),
        ([object()], "is of type object, not a number, .* a text: leave it out of record_infos"),
        ([b"bytes"], "is of type bytes"),
        ([np.array(["a", "b"])], "is of type ndarray"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_its_name(values, says):
    with pytest.raises(CallboardError, match=says):
        InfoColumns(["x"], "Maze-v0").column("x", values)


def test_a_form_may_not_change_between_episodes():
    columns = InfoColumns(["x"], "Maze-v0")
    columns.column("x", [ARRAY])
    with pytest.raises(CallboardError, match="is an array of shape .* in one timestep, and a number in another"):
        columns.column("x", [1.0, 2.0])
