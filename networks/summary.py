"""A table of the layers of networks, with the shapes of their variables and the number of parameters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Layer(NamedTuple):
    """A module that has variables of its own."""

    path: str
    """Attributes through which the module is reached, such as `torso.layers.0`; empty for the networks themselves."""
    kind: str
    """Name of the module's class."""
    variables: tuple[str, ...]
    """Names and shapes of its own variables, such as `kernel [4, 64]`."""
    parameters: int
    """Number of values in its variables."""
    trainable: int
    """The part of them that is trainable."""


class NetworkSummary(NamedTuple):
    """The layers of networks."""

    layers: Sequence[Layer]

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def trainable(self) -> int:
        return sum(layer.trainable for layer in self.layers)

    def line(self) -> str:
        """Returns one line for the user."""
        fixed = self.parameters - self.trainable
        layers = "1 layer" if len(self.layers) == 1 else f"{len(self.layers)} layers"
        return f"{self.parameters:,} parameters in {layers}" + (f", {fixed:,} of them not trainable" if fixed else "")

    def table(self) -> str:
        """Returns a table of all layers, with a line for each."""
        rows = [("layer", "kind", "parameters", "variables")]
        rows += [
            (layer.path or "-", layer.kind, f"{layer.parameters:,}", ", ".join(layer.variables))
            for layer in self.layers
        ]
        rows.append(("total", "", f"{self.parameters:,}", f"{self.trainable:,} trainable"))
        paths, kinds, numbers = (max(len(row[column]) for row in rows) for column in range(3))
        return "\n".join(
            f"{path.ljust(paths)}  {kind.ljust(kinds)}  {number.rjust(numbers)}  {variables}".rstrip()
            for path, kind, number, variables in rows
        )


def summarize_networks(networks: Any) -> NetworkSummary:
    """Returns the layers of networks in the order of their attributes.

    A layer that is reached in several ways is listed once, with its shortest path.

    Args:
      networks: a `tf.Module`, or lists and dictionaries of them; all variables must have been created.
    """
    holder = tf.Module()
    holder.networks = networks
    found = list(holder._flatten(predicate=lambda leaf: isinstance(leaf, (tf.Variable, tf.Module)), with_path=True))
    owners: dict[tuple[Any, ...], Any] = {(): holder, ("networks",): networks}
    owners.update({path: leaf for path, leaf in found if isinstance(leaf, tf.Module)})
    shortest: dict[int, tuple[tuple[Any, ...], tf.Variable]] = {}
    for path, leaf in found:
        if isinstance(leaf, tf.Variable) and (id(leaf) not in shortest or len(path) < len(shortest[id(leaf)][0])):
            shortest[id(leaf)] = path, leaf
    layers: dict[tuple[Any, ...], list[tuple[str, tf.Variable]]] = {}
    for path, variable in shortest.values():
        owner = path[:-1]
        while owner not in owners:
            owner = owner[:-1]
        layers.setdefault(owner, []).append((_joined(path[len(owner) :]), variable))
    return NetworkSummary(
        [
            Layer(
                _joined(path[1:]),
                type(owners[path]).__name__,
                tuple(f"{name} {variable.shape.as_list()}" for name, variable in variables),
                sum(_size(variable) for _, variable in variables),
                sum(_size(variable) for _, variable in variables if variable.trainable),
            )
            for path, variables in layers.items()
        ]
    )


def _joined(path: Sequence[Any]) -> str:
    return ".".join(str(part).lstrip("_") or "_" for part in path)


def _size(variable: tf.Variable) -> int:
    return int(variable.shape.num_elements())
