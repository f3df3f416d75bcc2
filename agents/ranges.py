"""Range checks of hyperparameters."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import CallboardError


def check_ranges(
    agent: Any,
    at_least_one: Sequence[str],
    at_least_zero: Sequence[str],
    from_zero_to_one: Sequence[str],
    more_than_zero: Sequence[str],
) -> None:
    """Checks that the agent's fields are within their ranges.

    A field may be None, which is always accepted, or hold several numbers.

    Raises:
      CallboardError: a field is out of its range; the message names the first such field.
    """

    def refuse(name: str, must: str) -> NoReturn:
        raise CallboardError(f"agent.{name} must {must} {getattr(agent, name)}")

    def numbers(name: str) -> list[float]:
        return [number for number in np.atleast_1d(getattr(agent, name)) if number is not None]

    for name in at_least_one:
        if not all(1 <= number < math.inf for number in numbers(name)):
            refuse(name, "be at least 1, not")
    for name in at_least_zero:
        if not all(0 <= number < math.inf for number in numbers(name)):
            refuse(name, "be at least 0, not")
    for name in from_zero_to_one:
        if not all(0 <= number <= 1 for number in numbers(name)):
            refuse(name, "lie between 0 and 1, not be")
    for name in more_than_zero:
        if not all(0 < number < math.inf for number in numbers(name)):
            refuse(name, "be more than 0, not")
