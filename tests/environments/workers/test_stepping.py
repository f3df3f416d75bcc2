"""Steps of environments in a worker."""

import numpy as np
import pytest

from callboard.environments.workers.stepping import _rows, _store

SPACES = {
    "kind": "Dict",
    "parts": [["speed", {"kind": "Box"}], ["pair", {"kind": "Tuple", "parts": [{"kind": "Box"}]}]],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_actions_are_arrays_without_axes(dtype):
    rows = _rows(SPACES, {"speed": np.ones(2, dtype), "pair": (np.ones((2, 3), dtype),)})
    for row in rows:
        assert type(row["speed"]) is np.ndarray and row["speed"].shape == () and row["speed"].dtype == dtype
        assert row["pair"][0].shape == (3,)


def test_single_choices_are_integers():
    for kind in ("Discrete", "Box"):
        assert [type(row) for row in _rows({"kind": kind}, np.zeros(2, np.int32))] == [int, int]


def test_numbers_that_are_objects_are_stored_as_numbers():
    array = np.zeros(1, np.float32)
    _store({"kind": "Box"}, array, 0, np.array(0.25, object))
    assert array[0] == 0.25
    with pytest.raises(ValueError):
        _store({"kind": "Box"}, array, 0, np.array("0.25", object))
