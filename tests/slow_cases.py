"""Cases of a test of which the fast suite runs a few, and the slow one all."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`, all of which but some are slow.

    Args:
      cases: values, or tuples of values.
      *fast: those that are not slow; each must be one of the cases.
    """
    found = list(cases)
    assert all(case in found for case in fast), f"unknown cases in {fast}"
    return [case if case in fast else _slow(case) for case in found]


def checkered(ones: Iterable[Any], others: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Every second pair of a product, as on a chessboard: where pairs fail for one of their two values alone.

    Each value is in half of its pairs, with the even or the odd ones of the others.
    """
    columns = list(others)
    return [
        (one, other) for row, one in enumerate(ones) for column, other in enumerate(columns) if (row + column) % 2 == 0
    ]


def values_in_session(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """The values of a parameter in those tests of a session that use the fixture which asks.

    A fixture that computes something for all of them at once would otherwise compute it for tests that do not run.
    """
    found: dict[Any, None] = {}
    for item in request.session.items:
        if request.fixturename in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
            value = item.callspec.params.get(parameter)
            found.update({} if value is None else {value: None})
    return list(found)


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
