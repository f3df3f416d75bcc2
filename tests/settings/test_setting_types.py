"""Types of settings: descriptions, conversion and ranges."""

# What type checkers refuse is tried here too.
# mypy: disable-error-code="arg-type"

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Interval

from callboard.errors import CallboardError
from callboard.settings.setting_descriptions import described as describe
from callboard.settings.setting_types import (
    FiniteFloat,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    check_ranges,
    converted,
    texts_of,
)

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
        (
            tuple[tuple[PositiveInt, PositiveInt, PositiveInt], ...],
            "a list of lists of 3 whole numbers of at least 1, such as [[64, 64, 64]]",
        ),
        (list[tuple[int, str]], "a list"),
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
    size: int = 1


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    sizes: tuple[PositiveInt, ...] = ()
    name: str = ""
    color: Literal["red", "blue"] | None = None


def own_torso(spec):
    return spec


def test_classes_and_functions_stand_for_their_names():
    name = f"{__name__}:own_torso"
    assert converted("key", own_torso, str) == converted("key", own_torso, str | None) == name
    assert converted("key", [own_torso, "b"], str | tuple[str, ...]) == (name, "b")
    assert converted("key", {"image": Inner}, Mapping[str, str]) == {"image": f"{__name__}:Inner"}
    # Where a function itself can be given, it stays one.
    assert converted("key", own_torso, str | Callable[..., Any]) is own_torso


@pytest.mark.parametrize("value", [lambda spec: spec, functools.partial(own_torso, 1), [own_torso, lambda: 1]])
def test_what_has_no_name_is_refused_with_the_way_to_give_it_one(value):
    with pytest.raises(
        CallboardError, match="; a run saves classes and functions by their names: define them at the to"
    ):
        converted("key", value, str | tuple[str, ...] | None)
    with pytest.raises(CallboardError, match="not <.*>$"):
        converted("key", own_torso, PositiveInt)


def test_the_ranges_of_nested_dataclasses_are_checked():
    check_ranges(Outer())
    with pytest.raises(CallboardError, match="^agent.inner.rate must be a number above 0 and at most 1, not 2.0$"):
        check_ranges(Outer(Inner(2.0)), "agent.")
    with pytest.raises(CallboardError, match="^sizes must be a list of whole numbers of at least 1"):
        check_ranges(Outer(sizes=(0,)))
    check_ranges(Outer(color="blue"))
    with pytest.raises(CallboardError, match="^color must be red, blue or null, not 'green'$"):
        check_ranges(Outer(color="green"))


def test_texts_are_given_in_a_list_or_separated_by_commas():
    assert texts_of("torso/*, core") == texts_of(["torso/*", " core "]) == ("torso/*", "core")
    assert texts_of(()) == () and texts_of("") == ("",)


@dataclasses.dataclass(frozen=True)
class Group:
    name: str = "adam"
    rate: Rate = 0.5
    inner: Inner = Inner(0.25)

    @property
    def problem(self):
        return "sgd is slow" if self.name == "sgd" else ""


@dataclasses.dataclass(frozen=True)
class Whole:
    group: Group = Group(rate=0.75, inner=Inner(0.5, size=7))
    several: tuple[Inner, ...] = ()
    either: str | Inner = ""


@pytest.mark.parametrize(
    "value, expected",
    [
        ({}, Whole()),
        ({"group": "rmsprop"}, Whole(Group("rmsprop", 0.75, Inner(0.5, 7)))),
        ({"group": {"inner": {"rate": "1"}}}, Whole(Group("adam", 0.75, Inner(1.0, 7)))),
        ({"group": Group("ftrl", rate="0.5", inner={"rate": 1})}, Whole(Group("ftrl", 0.5, Inner(1.0)))),
        (
            {"several": [{"rate": 1}, Inner()], "either": {"rate": 1}},
            Whole(several=(Inner(1.0), Inner()), either=Inner(1.0)),
        ),
        ({"either": "text"}, Whole(either="text")),
    ],
)
def test_dataclasses_are_read_as_they_are_nested(value, expected):
    assert converted("", value, Whole) == expected


@pytest.mark.parametrize(
    "value, message",
    [
        ({"grop": {}}, "unknown key 'grop'; did you mean 'group'?"),
        ({"group": {"rat": 1}}, "unknown key 'group.rat'; did you mean 'group.rate'?"),
        ({"group": {"zzz": 1}}, "unknown key 'group.zzz'; choose from group.name, group.rate, group.inner"),
        ({"group": {"inner": {"rate": 2}}}, "group.inner.rate must be a number above 0 and at most 1, not 2"),
        ({"group": 3}, "group is a group of settings, not 3; set one of them by its name, such as group.name"),
        (
            {"group": {"inner": "x"}},
            "group.inner is a group of settings, not 'x'; set one of them by its name, such as",
        ),
        ({"group": "sgd"}, "group: sgd is slow"),
        ({"several": [3]}, "several must be a list of settings by name, such as [{rate: ...}], not [3]"),
        ({"several": [{"rate": 0}]}, "several.rate must be a number above 0 and at most 1, not 0"),
        ({"either": 3}, "either must be text or settings by name, such as {size: 5}, not 3"),
    ],
)
def test_a_mistake_in_a_nested_dataclass_has_its_full_name(value, message):
    with pytest.raises(CallboardError) as caught:
        converted("", value, Whole)
    assert str(caught.value).startswith(message)


def test_settings_that_are_known_elsewhere_are_proposed():
    with pytest.raises(CallboardError, match="unknown key 'group.speed'; did you mean 'other.speed'?"):
        converted("", {"group": {"speed": 1}}, Whole, known=["group.rate", "other.speed"])
    with pytest.raises(CallboardError, match="unknown key 'either.rat'; did you mean 'either.rate'?"):
        converted("", {"either": {"rat": 1}}, Whole, known=["group.rate", "either", "other.rat"])
