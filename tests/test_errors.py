"""Names that messages suggest, and errors as lines."""

import pytest

from callboard.errors import CallboardError, nearest, one_line, suggestion, unknown

TORSOS = ("auto", "mlp", "Nature")


@pytest.mark.parametrize("name, expected", [("ml", "mlp"), ("nature", "Nature"), ("MLP", "mlp"), ("x", None)])
def test_the_most_similar_name_is_found_ignoring_case(name, expected):
    assert nearest(name, TORSOS) == expected


def test_without_a_similar_name_the_known_ones_are_listed():
    assert str(unknown("torso", "ml", TORSOS)) == "unknown torso 'ml'; did you mean 'mlp'?"
    assert str(unknown("torso", "x", TORSOS)) == "unknown torso 'x'; choose from auto, mlp, Nature"
    assert str(unknown("key", 5, TORSOS, "see --help")) == "unknown key 5; see --help"
    assert suggestion("x", []) == "choose from none"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\nno\nnumber"), "ValueError: no"),
        (KeyError("a: "), "KeyError: 'a: '"),
        (AssertionError(), "AssertionError"),
        (CallboardError("set it to 1"), "set it to 1"),
    ],
)
def test_an_error_is_one_line(error, line):
    assert one_line(error) == line
