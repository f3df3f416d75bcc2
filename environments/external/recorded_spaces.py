"""What stands for the environment of recorded episodes (`recorded:data`); only its spaces are known."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..batches.batched import BatchedEnvironment, check_seeds
from ..checks.user_errors import unknown_option
from ..recorded.recorded_data import open_data
from .spaces_only import SpacesOnly

RECORDED_PREFIX = "recorded:"


def make_recorded(
    dataset: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]
) -> BatchedEnvironment:
    """Makes what stands for `batch_size` environments with the spaces of a data set.

    Raises:
      CallboardError: there is no such data set, or an option is given: there are none.
    """
    check_recorded(dataset, options)
    check_seeds(batch_size, seeds)
    return SpacesOnly(
        open_data(dataset).spec,
        batch_size,
        f"environment '{RECORDED_PREFIX}{dataset}' stands for recorded episodes, and cannot be stepped: name an env "
        "with the same spaces",
    )


def check_recorded(dataset: str, options: Mapping[str, Any]) -> None:
    """Raises `CallboardError` if a data set cannot be read, or an option is given."""
    for option in options:
        raise unknown_option(RECORDED_PREFIX + dataset, option, ())
    open_data(dataset)
