"""The names of `own_loop` in Callboard 0.2, for loops that import them."""

from .own_loop import Servers as Parts
from .own_loop import rollout, train
from .own_loop import start_servers as start_parts

__all__ = ["Parts", "rollout", "start_parts", "train"]
