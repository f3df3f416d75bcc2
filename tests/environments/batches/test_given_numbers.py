"""Numbers of a caller: what is an array, and that nothing else is given to NumPy."""

import decimal
import json
import tracemalloc
import warnings

import numpy as np
import pytest

from callboard.environments.batches.given_observations import read_numbers
from callboard.errors import CallboardError


@pytest.mark.parametrize(
    "given, expected",
    [
        (5, np.array(5)),
        ([], np.zeros(0)),
        ([[], []], np.zeros((2, 0))),
        ([1, 2.5, True], np.array([1, 2.5, 1])),
        ([(1, 2), [3, 4]], np.array([[1, 2], [3, 4]])),
        ([[[1], [2]]], np.array([[[1], [2]]])),
        (np.float32(2), np.float32(2)),
        ([np.zeros(2), np.ones(2)], np.array([[0, 0], [1, 1]])),
        (range(3), np.arange(3)),
        ([[range(2)], [range(2)]], np.array([[[0, 1]], [[0, 1]]])),
        ([-(2**63), 2**63 - 1], np.array([-(2**63), 2**63 - 1])),
    ],
)
def test_numbers_are_an_array(given, expected):
    found = read_numbers(given, "it")
    np.testing.assert_array_equal(found, expected)
    assert found.dtype.kind in "biuf" and found.shape == expected.shape


WRONG = {
    "text": ("x" * 100, "contains text, '" + "x" * 32 + "': give numbers"),
    "a text among numbers": ([1, "x"], "contains text, 'x'"),
    "a text of escapes": ([["\x1b[2J\n"]], r"contains text, '\\x1b\[2J\\n'"),
    "bytes": ([b"x"], "contains text, b'x'"),
    "a NumPy text": (np.str_("x"), "contains text"),
    "an array of texts": (np.array(["x", "y"]), "is of type str"),
    "null": ([1, None], r"contains null \(None\)"),
    "a dictionary": ([{}], "contains a dictionary"),
    "lists of different lengths": ([[1], [2, 3]], "lists of different lengths"),
    "a list beside a number": ([1, [2]], "lists and other values"),
    "arrays of different shapes": ([np.zeros(1), np.zeros(2)], "arrays of different shapes"),
    "deep lists": (json.loads("[" * 900 + "]" * 900), "more than 32"),
    "an endless integer": ([1, 10**400], "more than 64 bits"),
    "an integer of 65 bits": (2**64, "more than 64 bits"),
    "complex numbers": (np.zeros(2, np.complex64), "of type complex64"),
    "another object": ([decimal.Decimal(1), object()], "not of numbers"),
}


@pytest.mark.parametrize("given, message", WRONG.values(), ids=list(WRONG))
def test_anything_else_is_one_clear_error(given, message):
    with warnings.catch_warnings(), pytest.raises(CallboardError, match=message) as caught:
        warnings.simplefilter("error")
        read_numbers(given, "it")
    assert str(caught.value).startswith("it ") and len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(["x" * 30_000] + [""] * 10_000),
        json.dumps([["x" * 30_000]] + [[""]] * 10_000),
        "[" + "[]," * 20_000 + "[]]",
        "[" + "1," * 30_000 + '"' + "x" * 30_000 + '"]',
        "[" + "1.5," * 20_000 + "1e999]",
        "[" + ",".join(["9" * 4000] * 16) + "]",
    ],
    ids=["texts", "texts in lists", "empty lists", "a text among numbers", "floats", "endless integers"],
)
def test_memory_is_in_proportion_to_what_was_given(text):
    tracemalloc.start()
    try:
        given = json.loads(text)
        try:
            read_numbers(given, "it")
        except CallboardError:
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(text)
