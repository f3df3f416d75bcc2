"""The parser of the commands: every wrong usage is one line with what to write instead."""

import dataclasses

import pytest

from callboard.cli.command_parser import CommandParser, field_values
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields
from callboard.settings.setting_types import PositiveInt


@pytest.fixture
def parser():
    parser = CommandParser("callboard play")
    parser.add_argument("run", help="the run directory")
    parser.add_argument("-e", "--episodes", type=int, default=20)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--mode", choices=("greedy", "sampled"))
    parser.add_argument("--json", action="store_true")
    return parser


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "callboard play needs the run directory; see callboard play --help"),
        (["x", "--episode", "3"], "callboard play has no option '--episode'; did you mean '--episodes'?"),
        (["x", "--zzz=3"], "callboard play has no option '--zzz'; see callboard play --help"),
        (["x", "--episodes", "many"], "--episodes must be a whole number, not 'many'"),
        (["x", "-e", "1.5"], "--episodes must be a whole number, not 1.5"),
        (["x", "--epsilon", "small"], "--epsilon must be a number, not 'small'"),
        (["x", "--epsilon", ".nan"], "--epsilon must be a number, not nan"),
        (["x", "--epsilon", ""], "--epsilon needs a value: a number"),
        (["x", "--mode", "gready"], "--mode must be one of greedy, sampled, not 'gready'; did you mean 'greedy'?"),
        (["x", "--mode", "7"], "--mode must be one of greedy, sampled, not '7'"),
        (["x", "--episodes"], "--episodes needs a value"),
        (["x", "--json=yes"], "--json takes no value"),
    ],
)
def test_wrong_usage_is_one_line(parser, arguments, message):
    with pytest.raises(CallboardError) as caught:
        parser.parse_args(arguments)
    assert str(caught.value) == message


def test_line_breaks_of_the_user_do_not_reach_the_message(parser):
    with pytest.raises(CallboardError) as caught:
        parser.parse_args(["x", "--episodes", "a\nb"])
    assert "\n" not in str(caught.value)


def test_right_usage_gives_values_and_defaults(parser):
    known = parser.parse_args(["x", "--epsilon", "0.1", "--json"])
    assert (known.run, known.episodes, known.epsilon, known.mode, known.json) == ("x", 20, 0.1, None, True)


def test_a_missing_argument_is_named_by_its_choices_its_description_or_its_option():
    parser = CommandParser("callboard look")
    parser.add_argument("what", choices=("info", "video"), help="what is shown")
    parser.add_argument("runs", nargs="+", help="the runs")
    parser.add_argument("--host", required=True)
    for arguments, what in (([], "one of info, video"), (["info"], "the runs"), (["info", "a"], "--host")):
        with pytest.raises(CallboardError) as caught:
            parser.parse_args(arguments)
        assert str(caught.value) == f"callboard look needs {what}; see callboard look --help"
    with pytest.raises(CallboardError, match="^callboard look takes one of info, video, not 'inf'; did you mean"):
        parser.parse_args(["inf", "a", "--host", "b"])
    assert "{info,video}" in parser.format_usage()


def test_numbers_are_written_as_in_settings(parser):
    assert parser.parse_args(["x", "--episodes", "1e3", "--epsilon", "1e-3"]).episodes == 1000


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
    parser.add_fields(fields)
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
    with pytest.raises(CallboardError, match="--count must be a whole number of at least 1 or null, not 0"):
        parsed("--count", "0")
    with pytest.raises(CallboardError, match="--count needs a value: a whole number of at least 1 or null"):
        parsed("--count", "")


def test_the_help_shows_descriptions_and_defaults():
    parser = CommandParser("callboard x")
    parser.add_fields(declared_fields(Options))
    text = parser.format_help()
    assert "100% of them. ([])" in text and "how many. (null)" in text and "--no-wet" not in text
