"""Weights by their path in a module, `_torso/_layers/0/kernel`, in memory and in checkpoints of TensorFlow."""

import collections
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"


def weights_by_path(module: tf.Module) -> dict[str, tf.Variable]:
    """Returns all variables of a module by path."""
    children = tf.train.TrackableView.children
    return _by_path(module, lambda node: list(children(node).items()), lambda node: isinstance(node, tf.Variable))


def saved_weights_by_path(checkpoint: pathlib.Path, module: str) -> dict[str, np.ndarray]:
    """Returns the values of a module's variables in a checkpoint, by the paths of `weights_by_path`.

    Args:
      checkpoint: the prefix of the checkpoint's files.
      module: the name under which the module was saved.
    """
    reader = tf.train.load_checkpoint(str(checkpoint))
    nodes = TrackableObjectGraph.FromString(reader.get_tensor(_GRAPH)).nodes
    roots = {child.local_name: child.node_id for child in nodes[0].children}

    def key_of(node: int) -> str:
        return next((one.checkpoint_key for one in nodes[node].attributes if one.name == _VALUE), "")

    def children(node: int) -> list[tuple[str, int]]:
        return [(child.local_name, child.node_id) for child in nodes[node].children]

    found = _by_path(roots[module], children, lambda node: bool(key_of(node)))
    return {path: reader.get_tensor(key_of(node)) for path, node in found.items()}


def _by_path(root: Any, children: Callable[[Any], list[tuple[str, Any]]], is_variable: Callable[[Any], bool]) -> Any:
    """Returns variables by their shortest paths, in the order in which TensorFlow names them in checkpoints."""
    found: dict[str, Any] = {}
    queue: collections.deque[tuple[tuple[str, ...], Any]] = collections.deque([((), root)])
    seen = {_key(root)}
    while queue:
        path, node = queue.popleft()
        for name, child in children(node):
            if _key(child) in seen:
                continue
            seen.add(_key(child))
            if is_variable(child):
                found["/".join((*path, name))] = child
            else:
                queue.append(((*path, name), child))
    return found


def _key(node: Any) -> Any:
    return node if isinstance(node, int) else id(node)
