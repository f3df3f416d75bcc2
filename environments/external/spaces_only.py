"""Environments of which only the spaces are known: simulators that connect from outside (`external:spaces.json`), and
those of recorded episodes (`recorded:data`)."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..batches import encoding
from ..batches.batched import BatchedEnvironment, check_seeds
from ..batches.spaces import action_encoding, observation_encoding
from ..batches.user_errors import unknown_option
from ..recorded.recorded_data import open_data
from .spaces_file import read_spaces


class SpacesOnly(BatchedEnvironment):
    """Has a spec, and cannot be reset or stepped.

    Args:
      spec: the spec.
      batch_size: the number of environments.
      seeds: a seed for each of them, which none takes.
      refusal: what is said where something is to be played.
    """

    def __init__(self, spec: EnvironmentSpec, batch_size: int, seeds: Sequence[int], refusal: str):
        check_seeds(batch_size, seeds)
        self._spec = spec
        self._batch_size = batch_size
        self._refusal = refusal

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
        raise CallboardError(self._refusal)


RECORDED_PREFIX = "recorded:"


def make_recorded(
    dataset: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]
) -> BatchedEnvironment:
    """Makes a placeholder for `batch_size` environments with the spaces of a data set.

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
    for option in options:
        raise unknown_option(RECORDED_PREFIX + dataset, option, ())
    open_data(dataset)


EXTERNAL_PREFIX = "external:"


def make_external(path: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a placeholder for `batch_size` simulators whose spaces are in a file.

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
        f"environment '{EXTERNAL_PREFIX}{path}' stands for simulators that connect to a policy server, and cannot be "
        "stepped from here: name another env with the same spaces",
    )


def check_external(path: str, options: Mapping[str, Any]) -> None:
    """Raises `CallboardError` if a spaces file cannot be read, or an option is given."""
    for option in options:
        raise unknown_option(EXTERNAL_PREFIX + path, option, ())
    read_spaces(path)
