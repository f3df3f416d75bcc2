"""Options of an environment as a dataclass: converted, checked, and refused in one line."""

import dataclasses
from typing import Annotated, Literal

import pytest
from annotated_types import Interval

from callboard.environments.batches.options import read_options
from callboard.errors import CallboardError


@dataclasses.dataclass(frozen=True)
class Options:
    width: Annotated[int, Interval(ge=1, le=9)] = 4
    speed: float = 1.0
    walls: bool = True
    mode: Literal["easy", "hard"] | None = None

    def __post_init__(self):
        if self.mode == "hard" and not self.walls:
            raise ValueError("a hard maze needs walls")


def test_options_that_are_left_out_have_their_defaults():
    assert read_options("Maze", {}, Options) == Options()


def test_options_are_converted_to_their_types():
    found = read_options("Maze", {"width": "7", "speed": 2, "mode": "hard"}, Options)
    assert found == Options(width=7, speed=2.0, mode="hard")
    assert type(found.width) is int and type(found.speed) is float


@pytest.mark.parametrize(
    "options, message",
    [
        ({"widht": 3}, "environment 'Maze' has no option 'widht'; did you mean 'width'?"),
        ({"color": 3}, "environment 'Maze' has no option 'color'; its options are mode, speed, walls, width"),
        ({3: 4}, "environment 'Maze' has no option '3'; its options are mode, speed, walls, width"),
        ({"width": 10}, "environment 'Maze': width must be a whole number from 1 to 9, not 10"),
        ({"walls": 1}, "environment 'Maze': walls must be true or false, not 1"),
        ({"mode": "extreme"}, "environment 'Maze': mode must be easy, hard or null, not 'extreme'"),
        ({"mode": "hard", "walls": False}, "environment 'Maze': a hard maze needs walls"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(options, message):
    with pytest.raises(CallboardError) as caught:
        read_options("Maze", options, Options)
    assert str(caught.value) == message
