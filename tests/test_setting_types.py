"""Types of settings: descriptions, conversion and ranges."""

import dataclasses
import math
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Interval

from callboard.errors import CallboardError
from callboard.setting_types import FiniteFloat, PositiveFloat, PositiveInt, UnitInterval, check_ranges, converted
from callboard.setting_types import described as describe

Rate = Annotated[float, Interval(gt=0, le=1)]


@pytest.mark.parametrize(
    "hint, text",
    [
        (PositiveInt, "a whole number of at least 1"),
        (PositiveFloat | None, "a number above 0 or null"),
        (UnitInterval, "a number from 0 to 1"),
        (Rate, "a number above 0 and at most 1"),
        (FiniteFloat, "a number that is finite"),
        (Annotated[int, Interval(ge=1, le=10_000)], "a whole number from 1 to 10,000"),
        (tuple[PositiveInt, ...], "a list of whole numbers of at least 1, such as [64, 64]"),
        (tuple[float, float], "a list of 2 numbers, such as [0.5, 1.0]"),
        (Literal["a", "b", "c"], "a, b or c"),
        (int | str, "a whole number or text"),
        (Literal["easy", "hard"] | None, "easy, hard or null"),
        (bool | None, "true, false or null"),
        (PositiveInt | str | None, "a whole number of at least 1, text or null"),
        (dict[str, Any], "settings by name, such as {size: 5}"),
    ],
)
def test_values_that_a_type_allows_are_described(hint, text):
    assert describe(hint) == text


@pytest.mark.parametrize(
    "hint, value, expected",
    [
        (PositiveInt, 1e6, 1_000_000),
        (PositiveInt, np.int64(3), 3),
        (PositiveFloat, "1e-3", 1e-3),
        (PositiveFloat | None, None, None),
        (int | str, 1, 1),
        (tuple[PositiveInt, ...], [8, 4], (8, 4)),
    ],
)
def test_plain_values_are_converted(hint, value, expected):
    found = converted("key", value, hint)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    "hint, value",
    [
        (PositiveInt, 0),
        (PositiveInt, True),
        (PositiveInt, 1.5),
        (int, "010"),
        (PositiveFloat, 0.0),
        (PositiveFloat, math.inf),
        (PositiveFloat | None, -1.0),
        (UnitInterval, math.nan),
        (Rate, 1.1),
        (FiniteFloat, -math.inf),
        (tuple[PositiveInt, ...], [8, 0]),
    ],
)
def test_a_value_of_another_type_or_out_of_range_is_rejected(hint, value):
    with pytest.raises(CallboardError) as caught:
        converted("key", value, hint)
    assert str(caught.value) == f"key must be {describe(hint)}, not {value!r}"


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: Rate = 0.5


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    sizes: tuple[PositiveInt, ...] = ()
    name: str = ""
    color: Literal["red", "blue"] | None = None


def test_the_ranges_of_nested_dataclasses_are_checked():
    check_ranges(Outer())
    with pytest.raises(CallboardError, match="^agent.inner.rate must be a number above 0 and at most 1, not 2.0$"):
        check_ranges(Outer(Inner(2.0)), "agent.")
    with pytest.raises(CallboardError, match="^sizes must be a list of whole numbers of at least 1"):
        check_ranges(Outer(sizes=(0,)))
    check_ranges(Outer(color="blue"))
    with pytest.raises(CallboardError, match="^color must be red, blue or null, not 'green'$"):
        check_ranges(Outer(color="green"))
