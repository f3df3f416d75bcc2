"""Environments that connect from outside (`external:spaces.json`); only their spaces are known."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..batches import encoding
from ..batches.batched import BatchedEnvironment, check_seeds
from ..batches.spaces import action_encoding, observation_encoding
from ..checks.user_errors import unknown_option
from .spaces_file import read_spaces

PREFIX = "external:"


class ExternalSimulators(BatchedEnvironment):
    """The spaces of simulators that connect to a policy server; they cannot be reset or stepped from here.

    Args:
      path: path of their spaces file.
      batch_size: the number of environments.

    Raises:
      CallboardError: there is no such file, or a space in it is not supported.
    """

    def __init__(self, path: str, batch_size: int):
        observation, action = read_spaces(path)
        self._spec = encoding.EnvironmentEncoding(observation_encoding(observation), action_encoding(action)).spec()
        self._batch_size = batch_size
        self._path = path

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def reset(self) -> Timestep:
        self._refuse()

    def step(self, actions: Nest) -> Timestep:
        self._refuse()

    def render(self) -> NoReturn:
        self._refuse()

    def close(self) -> None:
        pass

    def _refuse(self) -> NoReturn:
        raise CallboardError(
            f"environment '{PREFIX}{self._path}' stands for simulators that connect to a policy server, and cannot be "
            "stepped from here: name another env with the same spaces"
        )


def make_external(path: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes what stands for `batch_size` simulators whose spaces are in a file.

    Raises:
      CallboardError: as in `ExternalSimulators`, or an option is given: there are none.
    """
    check_external(path, options)
    check_seeds(batch_size, seeds)
    return ExternalSimulators(path, batch_size)


def check_external(path: str, options: Mapping[str, Any]) -> None:
    """Raises `CallboardError` if a spaces file cannot be read, or an option is given."""
    for option in options:
        raise unknown_option(PREFIX + path, option, ())
    read_spaces(path)
