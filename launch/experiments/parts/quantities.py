"""Ranges of numbers in an experiment: higher ones fit no machine, and mistyped ones are rejected at once."""

import re
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Interval

_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})")


class CountRange(str):
    """A text such as `2..20`, from a number to another one.

    Raises:
      ValueError: the text is another one.
    """

    description: ClassVar[str] = "a range such as 2..20"

    def __new__(cls, text: str) -> "CountRange":
        found = _RANGE.fullmatch(text) if isinstance(text, str) else None
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"{text!r} is not a range")
        return super().__new__(cls, text)

    @property
    def ends(self) -> tuple[int, int]:
        """The two numbers."""
        least, _, most = self.partition("..")
        return int(least), int(most)


Seconds = Annotated[float, Interval(gt=0, le=10**8)]
Gigabytes = Annotated[float, Interval(gt=0, le=10**6)]
GpuGigabytes = Annotated[float, Interval(ge=0.1, le=10**6)]
StepCount = Annotated[int, Interval(ge=1, le=2**62)]
NodeCount = Annotated[int, Interval(ge=1, le=10_000)]
ActorCount = Annotated[int, Interval(ge=0, le=10_000)]
if TYPE_CHECKING:
    ActorRange = int
else:  # An experiment takes a range apart: no other code sees one.
    ActorRange = ActorCount | CountRange
EnvironmentCount = Annotated[int, Interval(ge=1, le=1_000_000)]
ActorEnvironmentCount = Annotated[int, Interval(ge=0, le=1_000_000)]
CheckpointCount = Annotated[int, Interval(ge=1, le=1_000_000)]
ThreadCount = Annotated[int, Interval(ge=0, le=1024)]
Port = Annotated[int, Interval(ge=1, le=65535)]
Seed = Annotated[int, Interval(ge=0, le=2**31 - 1)]
