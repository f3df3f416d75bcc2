"""The argument `env_config` of factories, as RLlib's environments take it."""

from collections.abc import Mapping
from typing import Any


class EnvConfig(dict[str, Any]):
    """Options of an environment, and where the environment is.

    Attributes:
      worker_index: 1 for the environments of actor 0, and so on; 0 for those of an evaluator, as in RLlib.
      vector_index: index of the environment among those of its actor or evaluator.
    """

    def __init__(self, options: Mapping[str, Any], worker_index: int, vector_index: int):
        super().__init__(options)
        self.worker_index = worker_index
        self.vector_index = vector_index
