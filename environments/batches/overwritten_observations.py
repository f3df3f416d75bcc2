"""Detection of final observations that an environment has overwritten before they are read."""

import logging
from typing import Any

import numpy as np
import tree


class FinalObservationCheck:
    """Finds out whether a vector environment which resets in the same step keeps the final observations of episodes.

    An environment that writes all its observations into one array has overwritten the final one with the first of the
    next episode by the time of the return.  That both are equal does not show it, since they may be equal in truth, as
    in a bandit.  It shows later, because what was returned as the final observation changes with the next steps.

    Args:
      name: the environment's name, for messages.
      batch_size: the number of environments.
    """

    def __init__(self, name: str, batch_size: int):
        self._name = name
        self._finals: list[tuple[list[Any], list[np.ndarray]] | None] = [None] * batch_size
        self._are_separate = [False] * batch_size
        self._watches = False
        self.are_lost = False
        """Whether final observations are known to be overwritten."""

    def ended(self, row: int, final: Any, is_equal: bool) -> None:
        """Takes the final observation of an environment, as it was returned.

        Args:
          row: index of the environment.
          final: the observation, a nest of arrays.
          is_equal: whether it equals the first observation of the next episode.
        """
        if not is_equal:
            self._are_separate[row], self._finals[row] = True, None
        elif not self._are_separate[row] and self._finals[row] is None:
            arrays = [leaf for leaf in tree.flatten(final) if isinstance(leaf, np.ndarray)]
            if arrays:
                self._finals[row] = arrays, [array.copy() for array in arrays]
                self._watches = True

    def stepped(self) -> None:
        """Looks at the final observations again, after a step."""
        if self._watches and any(kept is not None and not all(map(_equal, *kept)) for kept in self._finals):
            self._report()

    def returned(self, final: Any, observations: Any) -> None:
        """Looks at batched final observations, and the observations of the same step: nests of arrays `[B, ...]`."""
        pairs = zip(tree.flatten(final), tree.flatten(observations), strict=False)
        if not self.are_lost and any(np.may_share_memory(own, other) for own, other in pairs):
            self._report()

    def _report(self) -> None:
        self.are_lost, self._watches = True, False
        logging.warning(
            "%s writes all observations into one array, so that the first one of an episode overwrites the final one "
            "of the last: the last transition of truncated episodes is left out. Return new arrays, or take "
            "AutoresetMode.NEXT_STEP",
            self._name,
        )


def _equal(array: np.ndarray, copy: np.ndarray) -> bool:
    return bool(np.array_equal(array, copy, equal_nan=array.dtype.kind == "f"))
