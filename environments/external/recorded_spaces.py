"""The environment of recorded episodes (`recorded:data`), of which only the spaces are known."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..batches.batched import BatchedEnvironment
from ..recorded.recorded_data import open_data
from .spaces_only import SpacesOnly, refuse_options

RECORDED_PREFIX = "recorded:"


def make_recorded(
    dataset: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]
) -> BatchedEnvironment:
    """Makes what stands for `batch_size` environments with the spaces of a data set.

    Raises:
      CallboardError: there is no such data set, or an option is given: there are none.
    """
    check_recorded(dataset, options)
    return SpacesOnly(
        open_data(dataset).spec,
        batch_size,
        seeds,
        f"environment '{RECORDED_PREFIX}{dataset}' stands for recorded episodes, and cannot be stepped: name an env "
        "with the same spaces",
    )


def check_recorded(dataset: str, options: Mapping[str, Any]) -> None:
    """Raises `CallboardError` if a data set cannot be read, or an option is given."""
    refuse_options(RECORDED_PREFIX + dataset, options)
    open_data(dataset)
