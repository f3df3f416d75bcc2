"""Which operations of a graph have no kernel for GPUs, as TensorFlow lists its kernels also where there is no GPU."""

import contextlib
import functools

import tensorflow as tf
from tensorflow.python.eager import context as eager
from tensorflow.python.framework import kernels, op_def_registry

_DEVICES = ("GPU", "DEFAULT")


_GIVEN = ("Placeholder", "_Arg")
"""What a graph is given; int32 is given to it in the processor's memory."""
_WITHOUT_DATA = ("Shape", "ShapeN", "Size", "Rank", "ReadVariableOp")
"""What depends on no batch; decisions by a counter of steps wait for no computation of this step."""


def without_kernel(graphs):
    """Operations that TensorFlow computes on the processor although there is a GPU, as `name(types)`.

    Those without a kernel for GPUs, and those whose kernel takes from the processor's memory what the GPU has computed,
    such as sums of int32: it is copied back, and waited for.  Strings are messages of assertions.
    """
    missing = {_described(node) for nodes in graphs for node in nodes if not _fitting(node)}
    return (missing | {name for nodes in graphs for name in _copied_back(nodes)}) - {"Const(string)"}


def nodes_of(function):
    """The operations of a traced function, and of each that it calls."""
    graph = function.graph.as_graph_def()
    return [list(graph.node), *(list(called.node_def) for called in graph.library.function)]


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
    """The operations in each graph that a call runs, which are inlined."""
    eager.context().enable_graph_collection()
    try:
        function()
    finally:
        # Also after a failure: what is not taken is among the graphs of the next call.
        graphs = [one.post_optimization_graph for one in eager.context().export_run_metadata().function_graphs]
        eager.context().disable_graph_collection()
    return [list(graph.node) for graph in graphs]


@functools.cache
def _kernels_of(operation):
    return [one for one in kernels.get_registered_kernels_for_op(operation).kernel if one.device_type in _DEVICES]


def _fitting(node):
    return [kernel for kernel in _kernels_of(node.op) if _fits(kernel, node)]


def _copied_back(nodes):
    """Operations that take from the processor's memory what operations on the GPU have made of data."""
    named = {node.name: node for node in nodes}
    from_data = {}

    def sources(node):
        for text in node.input:
            name, *output = text.removeprefix("^").split(":")
            if not text.startswith("^"):
                yield named.get(name), int(output[-1]) if output else 0

    def is_from_data(node):
        if node is None or node.op in _WITHOUT_DATA:
            return False
        if node.name not in from_data:
            from_data[node.name] = node.op in _GIVEN
            from_data[node.name] |= any([is_from_data(source) for source, _ in sources(node)])
        return from_data[node.name]

    def is_on_gpu(node, output):
        if node is not None and node.op == "Identity":
            return is_on_gpu(*next(sources(node)))
        if not is_from_data(node) or node.op in _GIVEN or not (fitting := _fitting(node)):
            return False
        made = _arguments(node, op_def_registry.get(node.op).output_arg)[output]
        return not any(made in kernel.host_memory_arg for kernel in fitting)

    for node in nodes:
        if node.op in ("Identity", *_WITHOUT_DATA) or not (fitting := _fitting(node)):
            continue
        arguments = _arguments(node, op_def_registry.get(node.op).input_arg)
        for argument, source in zip(arguments, sources(node), strict=False):
            if all(argument in kernel.host_memory_arg for kernel in fitting) and is_on_gpu(*source):
                yield f"{_described(node)} of {source[0].op}"


def _arguments(node, definitions):
    """The name of the argument in which each of a node's inputs, or outputs, is."""
    names = []
    for one in definitions:
        if one.type_list_attr:
            count = len(node.attr[one.type_list_attr].list.type)
        else:
            count = node.attr[one.number_attr].i if one.number_attr else 1
        names += [one.name] * count
    return names


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
