"""Cases of a test of which the fast suite runs a few, and the slow one all."""

from collections.abc import Collection, Iterable
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
    return [_parameter(case, () if case in fast else pytest.mark.slow) for case in found]


def _parameter(case: Any, marks: Collection[Any]) -> Any:
    return pytest.param(*case, marks=marks) if isinstance(case, tuple) else pytest.param(case, marks=marks)
