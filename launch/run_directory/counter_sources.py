"""Counts by source, as files of a run keep them."""

from typing import Any

_LARGEST = 2**62
"""Bound on a count: sums of several still fit 64 bits."""


def checked_sources(content: Any) -> dict[str, dict[str, int]]:
    """Returns the counts of a file by source, such as `{"actor/0#a1": {"environment_steps": 100}}`.

    Raises:
      ValueError: the content is something else.
    """
    if not isinstance(content, dict) or not all(map(_are_counts, content.values())):
        raise ValueError("they are no counts by source")
    return content


def _are_counts(counts: Any) -> bool:
    return isinstance(counts, dict) and all(type(count) is int and 0 <= count < _LARGEST for count in counts.values())
