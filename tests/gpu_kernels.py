"""Which operations of a graph have no kernel for GPUs, as TensorFlow lists its kernels also where there is no GPU."""

import contextlib
import functools

import tensorflow as tf
from tensorflow.python.eager import context as eager
from tensorflow.python.framework import kernels, op_def_registry

_DEVICES = ("GPU", "DEFAULT")


def without_kernel(nodes):
    """Operations that TensorFlow computes on the processor although there is a GPU, as `name(types)`."""
    missing = {_described(node) for node in nodes if not any(_fits(kernel, node) for kernel in _kernels_of(node.op))}
    # Strings are messages of assertions.
    return missing - {"Const(string)"}


def nodes_of(function):
    """The operations of a traced function, and of those that it calls."""
    graph = function.graph.as_graph_def()
    return [*graph.node, *(node for called in graph.library.function for node in called.node_def)]


@contextlib.contextmanager
def graphs_as_written():
    """Lets TensorFlow change no graph: what it fuses for the processor it does not fuse for a GPU."""
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **options})


def nodes_run_by(function):
    """The operations in all graphs that a call runs, which are inlined."""
    eager.context().enable_graph_collection()
    try:
        function()
        graphs = [one.post_optimization_graph for one in eager.context().export_run_metadata().function_graphs]
    finally:
        eager.context().disable_graph_collection()
    return [node for graph in graphs for node in graph.node]


@functools.cache
def _kernels_of(operation):
    return [one for one in kernels.get_registered_kernels_for_op(operation).kernel if one.device_type in _DEVICES]


def _fits(kernel, node):
    return all(set(_types(node, limit.name)) <= set(limit.allowed_values.list.type) for limit in kernel.constraint)


def _types(node, name):
    value = node.attr[name] if name in node.attr else _defaults(node.op)[name]
    return value.list.type or [value.type]


@functools.cache
def _defaults(operation):
    return {attribute.name: attribute.default_value for attribute in op_def_registry.get(operation).attr}


def _described(node):
    types = [tf.as_dtype(value.type).name for _, value in sorted(node.attr.items()) if value.type]
    return f"{node.op}({', '.join(types)})"
