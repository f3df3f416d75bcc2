"""The fields of a dataclass as options."""

import dataclasses

import pytest

from callboard.errors import CallboardError
from callboard.launch.cli.command_parser import CommandParser
from callboard.launch.cli.field_options import add_fields, field_values
from callboard.nested_settings import declared_fields
from callboard.setting_types import PositiveInt


@dataclasses.dataclass(frozen=True)
class Options:
    """Options.

    Attributes:
      names: texts; 100% of them.
      count: how many.
      wet: whether it rains.
    """

    names: list[str] = dataclasses.field(default_factory=list)
    count: PositiveInt | None = None
    wet: bool = False


def parsed(*arguments):
    parser = CommandParser("callboard x")
    fields = declared_fields(Options)
    add_fields(parser, fields)
    return field_values(parser.parse_args(arguments), fields)


def test_fields_are_options():
    assert parsed() == {}
    assert parsed("--names", "a=1", "--names", "b", "--count=3", "--wet") == {
        "names": ["a=1", "b"],
        "count": 3,
        "wet": True,
    }
    assert parsed("--no-wet", "--count", "null") == {"wet": False, "count": None}


def test_a_value_that_does_not_fit_is_one_line():
    with pytest.raises(CallboardError, match="--count must be a whole number of at least 1 or null, not '0'"):
        parsed("--count", "0")
    with pytest.raises(CallboardError, match="--count needs a value: a whole number of at least 1 or null"):
        parsed("--count", "")


def test_the_help_shows_descriptions_and_defaults():
    parser = CommandParser("callboard x")
    add_fields(parser, declared_fields(Options))
    text = parser.format_help()
    assert "100% of them. ([])" in text and "how many. (null)" in text and "--no-wet" not in text
