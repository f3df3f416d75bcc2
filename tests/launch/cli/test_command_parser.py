"""The parser of the commands: every wrong usage is one line with what to write instead."""

import pytest

from callboard.errors import CallboardError
from callboard.launch.cli.command_parser import CommandParser


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
        (["x", "-e", "1.5"], "--episodes must be a whole number, not '1.5'"),
        (["x", "--epsilon", "small"], "--epsilon must be a number, not 'small'"),
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
