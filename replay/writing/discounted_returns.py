"""Discounted sums of the rewards of episodes so far, which replay keeps for the normalization of rewards."""

import numpy as np

from ...data import Record, any_true


class DiscountedReturns:
    """The discounted return of every environment of a batch, see `Sample.discounted_return`.

    Args:
      discount: γ.
      batch: number of environments (B).
    """

    def __init__(self, discount: float, batch: int):
        self._discount = np.float32(discount)
        self._before = self._after = np.zeros(batch, np.float32)

    def after(self, record: Record, again: bool = False) -> np.ndarray:
        """Returns the returns `[B]` up to the reward that follows a timestep.

        Args:
          record: the timestep, arrays `[B, ...]`.
          again: whether it is the same one as in the call before.
        """
        if not again:
            self._before = self._after
        self._after = self._discount * self._before
        if any_true(record.first):
            self._after[record.first] = 0
        self._after += record.reward
        return self._after
