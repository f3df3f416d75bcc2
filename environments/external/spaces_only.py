"""A batch of environments of which only the spaces are known: they are elsewhere, or were."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, check_seeds
from ..batches.user_errors import unknown_option


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


def refuse_options(env: str, options: Iterable[str]) -> None:
    """Raises `CallboardError` if an option is given: what only has spaces takes none."""
    for option in options:
        raise unknown_option(env, option, ())
