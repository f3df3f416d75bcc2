import numpy as np
import pytest
import tensorflow as tf

from callboard.agents import fast_function
from callboard.agents.fast_function import (
    CompiledFunction,
    CompiledOnFirstCall,
    as_arrays,
    compiled_by_xla,
    eager_functions,
)
from callboard.data import Timestep
from callboard.errors import CallboardError


def test_a_call_gives_the_structure_of_the_function_with_the_newest_variables():
    weight = tf.Variable(2.0)

    def function(timestep, state):
        doubled = timestep.observation["x"] * weight
        return {"z": doubled, "a": (state["h"] + 1, ())}, [timestep.first]

    flag, number = tf.TensorSpec((None,), tf.bool), tf.TensorSpec((None,))
    timestep = Timestep({"x": tf.TensorSpec((None, 3)), "unused": number}, number, number, flag, flag)
    compiled = CompiledFunction(function, timestep, {"h": tf.TensorSpec((2,), tf.int32)})
    x, ones, flags = np.ones((4, 3), np.float32), np.ones(4, np.float32), np.array([True, False, True, True])
    given = Timestep({"x": x, "unused": ones}, ones, ones, flags, flags)
    for value in (2.0, 5.0):
        weight.assign(value)
        named, flat = as_arrays(compiled(given, {"h": tf.constant([1, 2])}))
        np.testing.assert_array_equal(named["z"], value * x)
        np.testing.assert_array_equal(named["a"][0], [2, 3])
        assert named["a"][1] == () and list(named) == ["a", "z"]
        np.testing.assert_array_equal(flat[0], flags)


def test_what_is_not_used_is_not_looked_at_and_what_is_must_fit():
    vector = tf.TensorSpec((2,))
    compiled = CompiledFunction(lambda used, unused: used + 1, vector, vector)
    np.testing.assert_array_equal(compiled(np.zeros(2, np.float32), None), [1, 1])
    with pytest.raises(ValueError, match=r"float32\(3,\) was given where the function takes float32\(2,\)"):
        compiled(np.zeros(3, np.float32), None)
    with pytest.raises(ValueError, match="float64"):
        compiled(np.zeros(2), None)


@pytest.mark.parametrize("size", [4, 100_000])
def test_outputs_keep_nothing_of_the_arrays_that_went_in(size):
    compiled = CompiledFunction(lambda x: tf.identity(x), tf.TensorSpec((size,)))
    array = np.zeros(size, np.float32)
    output = compiled(array)
    array += 1
    assert not output.numpy().any()


def test_a_function_with_effects_has_them_at_every_call():
    count = tf.Variable(0)
    compiled = CompiledFunction(lambda x: x + tf.cast(count.assign_add(1), tf.float32), tf.TensorSpec(()))
    assert [float(compiled(np.float32(0.5))) for _ in range(3)] == [1.5, 2.5, 3.5]
    assert count.numpy() == 3


def test_a_function_that_is_compiled_on_its_first_call_gives_its_own_structure_and_has_its_effects_at_every_call():
    total = tf.Variable(0.0)

    def function(timestep, scale):
        total.assign_add(scale * tf.reduce_sum(timestep.observation["x"]))
        return {"total": total.read_value(), "a": (timestep.first, ())}, [timestep.reward * scale]

    compiled = CompiledOnFirstCall(function)
    for scale, expected in ((1.0, 3.0), (2.0, 9.0)):
        number = tf.constant([scale])
        timestep = Timestep({"x": tf.ones(3)}, number, number, number > 1, number > 1)
        named, (scaled,) = compiled(timestep, tf.constant(scale))
        assert float(named["total"]) == expected and named["a"][1] == ()
        assert bool(named["a"][0]) == (scale > 1) and float(scaled) == scale**2


@pytest.mark.parametrize(
    "size, threads, nested, kind",
    [
        (16, 2, False, "_InlineCall"),
        (256, 1, False, "_InlineCall"),
        (256, 2, False, "_ParallelCall"),
        (16, 2, True, "_InlineCall"),
        (256, 2, True, "_ParallelCall"),
    ],
)
def test_large_functions_run_in_several_threads_and_give_the_same(size, threads, nested, kind, monkeypatch):
    total, weights, made = tf.Variable(0.0), tf.Variable(tf.ones((size, size)) / size), []

    # As one of several updates in a call is.
    largest = tf.function(lambda: (weights @ weights)[0, 0])

    def function(x):
        total.assign_add(tf.reduce_sum(x) * (largest() if nested else (weights @ weights)[0, 0]) * size)
        return {"sum": total.read_value(), "products": [x @ x, tf.linalg.matmul(x, x, transpose_b=True)]}

    for name in ("_InlineCall", "_ParallelCall"):
        way = getattr(fast_function, name)
        monkeypatch.setattr(fast_function, name, lambda traced, name=name, way=way: made.append(name) or way(traced))
    monkeypatch.setattr(fast_function.tf.config.threading, "get_inter_op_parallelism_threads", lambda: threads)
    compiled, x = CompiledOnFirstCall(function), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    # A batch may consist of arrays or of tensors.
    for number, given in enumerate((x, tf.constant(x), x), 1):
        outputs = compiled(given)
        assert float(outputs["sum"]) == 10.0 * number
        np.testing.assert_array_equal(outputs["products"][0], [[7, 10], [15, 22]])
        np.testing.assert_array_equal(outputs["products"][1], [[5, 11], [11, 25]])
    assert made == [kind]


def test_eager_functions_run_in_python_at_every_call():
    seen = []

    def function(x, state):
        seen.append(x.numpy() if hasattr(x, "numpy") else None)
        return {"b": x + 1, "a": (state,)}

    spec = tf.TensorSpec((2,))
    with eager_functions():
        eager, first_call = CompiledFunction(function, spec, spec), CompiledOnFirstCall(function)
    compiled = CompiledFunction(function, spec, spec)
    assert not tf.config.functions_run_eagerly() and len(seen) == 1
    x = np.ones(2, np.float32)
    for _ in range(2):
        outputs = as_arrays(eager(x, x))
        np.testing.assert_array_equal(outputs["b"], as_arrays(compiled(x, x))["b"])
        np.testing.assert_array_equal(outputs["a"][0], x)
        first_call(tf.constant(x), x)
    assert len(seen) == 5 and all(value is not None for value in seen[1:])
    assert eager.outputs["b"] == tf.TensorSpec((2,))
    with pytest.raises(ValueError, match="float64"):
        eager(np.ones(2), x)


def test_a_function_is_run_with_the_optimizers_of_graphs_that_the_process_has():
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"dependency_optimization": False})
    try:
        compiled = CompiledFunction(lambda x: x + 1, tf.TensorSpec(()))
    finally:
        tf.config.optimizer.set_experimental_options({"dependency_optimization": True, **before})
    settings = tf.compat.v1.ConfigProto.FromString(compiled._call._settings)
    rewriter = settings.graph_options.rewrite_options
    assert rewriter.dependency_optimization == rewriter.OFF and settings.allow_soft_placement


@pytest.mark.parametrize(
    "devices, at_once",
    [(["GPU:0"], True), (["GPU:0", "CPU:0"], True), (["GPU:1"], True), (["GPU:0", "GPU:1"], False)],
)
def test_a_function_on_one_gpu_and_the_processor_is_one_operation(devices, at_once):
    """As its graph names them, also where there is no GPU."""

    def function(x):
        for name in devices:
            with tf.device(name):
                x = x * 2.0
        return x

    compiled = CompiledOnFirstCall(function)
    assert float(compiled(tf.constant(1.0))) == 2.0 ** len(devices)
    assert hasattr(compiled._call, "structured_outputs") != at_once


def on_a_device_beside_another():
    """Whether a function that uses one device or two is called as one operation, and what it gives in two calls."""
    found = {}
    for name, strategy in {
        "default": tf.distribute.get_strategy(),
        "second": tf.distribute.OneDeviceStrategy("/cpu:1"),
        "both": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    }.items():
        with strategy.scope():
            total = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

        def in_replica(x, total=total):
            read = total.read_value()
            # Of each replica a value of its own.
            total.assign_add(x * 1.0)
            return read * x

        def function(x, strategy=strategy, in_replica=in_replica):
            return {"sum": strategy.reduce("SUM", strategy.run(in_replica, args=(x,)), axis=None)}

        compiled = CompiledOnFirstCall(function)
        sums = [float(compiled(tf.constant(x))["sum"]) for x in (1.0, 2.0)]
        found[name] = [not hasattr(compiled._call, "structured_outputs"), *sums]
    return found


@pytest.mark.slow
def test_a_function_of_one_device_is_one_operation_also_where_there_are_two(on_two_devices):
    found = on_two_devices(__file__, "on_a_device_beside_another")
    assert found == {"default": [True, 1.0, 4.0], "second": [True, 1.0, 4.0], "both": [False, 2.0, 12.0]}


@pytest.mark.slow("daily")
def test_what_xla_cannot_compile_is_refused_in_one_line():
    with compiled_by_xla():
        refused = CompiledOnFirstCall(lambda x: tf.strings.length(tf.strings.as_string(x)))
        compiled = CompiledOnFirstCall(lambda x: x * 2)
    assert float(compiled(tf.constant(3.0))) == 6.0
    with pytest.raises(
        CallboardError, match="jit_compile: XLA cannot compile this learner's step; leave it out "
    ) as raised:
        refused(tf.constant(3.0))
    assert "\n" not in str(raised.value)
