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


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
