"""Incarnation ids of the nodes of a run."""

from collections.abc import Iterator
from typing import Any


class NodeIncarnations:
    """Incarnation ids of all nodes that have reported, and which of them have changed since a given version.

    Args:
      incarnation: id of the coordinator's incarnation; versions issued by another incarnation are ignored.
    """

    def __init__(self, incarnation: str):
        self._incarnation = incarnation
        self._number = 0
        # Ordered by last change.
        self._nodes: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    @property
    def version(self) -> list[Any]:
        """The current version, as plain Python, for `changed_since`."""
        return [self._incarnation, self._number]

    def update(self, name: str, incarnation_id: str) -> None:
        """Records a node's report."""
        known = self._nodes.get(name)
        if known is None or known[0] != incarnation_id:
            self._number += 1
            self._nodes.pop(name, None)
            self._nodes[name] = incarnation_id, self._number

    def changed_since(self, version: list[Any] | None) -> dict[str, str]:
        """Returns the ids that are new since a version."""
        incarnation, number = version or ("", 0)
        if incarnation != self._incarnation:
            number = 0
        changed: dict[str, str] = {}
        for name in reversed(self._nodes):
            incarnation_id, at = self._nodes[name]
            if at <= number:
                break
            changed[name] = incarnation_id
        return changed
