"""Environments that connect from outside (`external:spaces.json`); only their spaces are known."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..batches import encoding
from ..batches.batched import BatchedEnvironment
from ..batches.spaces import action_encoding, observation_encoding
from .spaces_file import read_spaces
from .spaces_only import SpacesOnly, refuse_options

PREFIX = "external:"


def make_external(path: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes what stands for `batch_size` simulators whose spaces are in a file.

    Raises:
      CallboardError: there is no such file, a space in it is not supported, or an option is given: there are none.
    """
    check_external(path, options)
    observation, action = read_spaces(path)
    spec = encoding.EnvironmentEncoding(observation_encoding(observation), action_encoding(action)).spec()
    return SpacesOnly(
        spec,
        batch_size,
        seeds,
        f"environment '{PREFIX}{path}' stands for simulators that connect to a policy server, and cannot be stepped "
        "from here: name another env with the same spaces",
    )


def check_external(path: str, options: Mapping[str, Any]) -> None:
    """Raises `CallboardError` if a spaces file cannot be read, or an option is given."""
    refuse_options(PREFIX + path, options)
    read_spaces(path)
