"""Writes a policy as an ONNX model, which acts without TensorFlow, and checks that it acts as the policy does."""

import contextlib
import importlib.util
import json
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ... import __version__
from ...data import Nest
from ...environments.batches.spec_files import format_spec
from ...errors import CallboardError, first_line, writing
from ...files.atomic_files import directory_draft
from ...files.guarded_files import parse_json
from ...messages.install_commands import install_command
from ...specs import EnvironmentSpec, MultiDiscreteArray
from .traced_policy import Signatures, TensorSpecs, TracedPolicy, leaf_names

MODEL, ABOUT = "policy.onnx", "policy.json"
_FORMAT = 1
_OPSET = 17
"""Version of ONNX's operations: onnxruntime has known it since 1.12, of 2022."""
_AS_MODEL = "leave --format out, which writes a SavedModel"
_CHECKED_TIMESTEPS, _CHECKED_BATCHES = 6, (1, 5)


def check_onnx() -> None:
    """Raises a CallboardError if the packages that write ONNX models are not installed."""
    for package in ("tf2onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise CallboardError(f"--format onnx needs {package}: {install_command('callboard[onnx]')}")


def save_policy_as_onnx(
    policy: TracedPolicy, spec: EnvironmentSpec, path: pathlib.Path, about: dict[str, Any]
) -> Signatures:
    """Writes a policy as `policy.onnx`, with `policy.json` beside it, atomically, after both have been checked.

    An input has the name that it has in the policy's signatures.  So has an output, but for the state, whose outputs
    begin with `next_`: ONNX takes no name twice.

    Args:
      policy: the policy, which does not sample its actions.
      spec: spec of its environment.
      path: a directory that does not exist or is empty.
      about: what `policy.json` also says, by name.

    Raises:
      CallboardError: the policy cannot be converted or written, or the model acts differently.
    """
    model = _converted(policy)
    about = {"format": _FORMAT, "callboard": __version__, **about, **_description(policy, spec)}
    with writing(path), directory_draft(path.absolute()) as draft:
        (draft / MODEL).write_bytes(model.SerializeToString())
        (draft / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        _check(draft, policy, spec)
    outputs = {_output(name, policy): leaf for name, leaf in policy.signatures.outputs.items()}
    return policy.signatures._replace(outputs=outputs)


def _converted(policy: TracedPolicy) -> Any:
    import onnx
    import tf2onnx

    inputs, outputs, _ = policy.signatures
    function = tf.function(
        lambda *tensors: {
            # Tensors of their own, since an input may be an output too, and two outputs the same.
            _output(name, policy): tf.identity(tensor)
            for name, tensor in policy.act(**dict(zip(inputs, tensors, strict=True))).items()
        },
        autograph=False,
    )
    signature = [tf.TensorSpec(leaf.shape, leaf.dtype, name) for name, leaf in inputs.items()]
    handlers = {"Log1p": (_rewritten, ["Log1p", "Add", "Log"]), "Expm1": (_rewritten, ["Expm1", "Exp", "Sub"])}
    with quiet("tf2onnx"):
        try:
            model, _ = tf2onnx.convert.from_function(function, signature, _OPSET, custom_op_handlers=handlers)
        except Exception as error:  # Of any class, by the operation.
            raise _refusal("the policy cannot be converted to ONNX", error) from error
    unknown = sorted({node.op_type for node in model.graph.node if not onnx.defs.has(node.op_type, node.domain)})
    if unknown:
        raise CallboardError(f"the policy uses {', '.join(unknown)}, for which ONNX has no operation: {_AS_MODEL}")
    for leaf in (*model.graph.input, *model.graph.output):
        leaf.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def _rewritten(graph: Any, node: Any, name: str, operations: Sequence[str]) -> None:
    """Rewrites log(1 + x) or exp(x) - 1, which ONNX has no operation of its own for, as two operations."""
    from tf2onnx.utils import map_onnx_to_numpy_type

    one = graph.make_const(f"{name}/one", np.ones((), map_onnx_to_numpy_type(graph.get_dtype(node.input[0]))))
    before, after = ([one.output[0]] if operation in ("Add", "Sub") else [] for operation in operations)
    inner = graph.make_node(operations[0], [node.input[0], *before])
    graph.remove_node(name)
    graph.make_node(operations[1], [inner.output[0], *after], outputs=node.output, name=name)


def _description(policy: TracedPolicy, spec: EnvironmentSpec) -> dict[str, Any]:
    inputs, outputs, state = policy.signatures
    start = {name: leaf.numpy() for name, leaf in policy.initial_state(batch_size=tf.constant(2)).items()}
    for name, leaf in start.items():
        if not np.array_equal(leaf[0], leaf[1]):
            raise CallboardError(f"{name} begins with other values in each environment of a batch: {_AS_MODEL}")
    observation, action = _paths("observation", spec.observation), _paths("action", spec.action)
    return {
        "inputs": [_leaf(name, leaf, observation) for name, leaf in inputs.items() if name not in state],
        "outputs": [_leaf(name, leaf, action) for name, leaf in outputs.items() if name not in state],
        "state": [
            {**_leaf(name, leaf, {}), "output": _output(name, policy), "start": _shortest(start[name][0])}
            for name, leaf in state.items()
        ],
        "environment": parse_json(format_spec(spec)),
    }


def _paths(prefix: str, nest: Nest) -> dict[str, list[str | int]]:
    paths = [path for path, _ in tree.flatten_with_path(nest)]
    return dict(zip(leaf_names(prefix, nest), ([prefix, *path] for path in paths), strict=True))


def _leaf(name: str, leaf: tf.TensorSpec, paths: dict[str, list[str | int]]) -> dict[str, Any]:
    path = {"path": paths[name]} if name in paths else {}
    return {"name": name, **path, "dtype": leaf.dtype.name, "shape": ["batch", *leaf.shape[1:].as_list()]}


def _shortest(start: np.ndarray) -> Any:
    """Returns one number where all are the same, and nested lists otherwise."""
    return start.flat[0].item() if start.size and (start == start.flat[0]).all() else start.tolist()


def _output(name: str, policy: TracedPolicy) -> str:
    return f"next_{name}" if name in policy.signatures.state else name


def _check(directory: pathlib.Path, policy: TracedPolicy, spec: EnvironmentSpec) -> None:
    """Compares the model with the policy, on random observations in batches of two sizes.

    Both see the policy's state, so that rounding does not add up.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(directory / MODEL, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # Its classes have no base class of their own.
        raise _refusal("onnxruntime cannot run the converted policy", error) from error
    rng = np.random.default_rng(0)
    for batch in _CHECKED_BATCHES:
        state = policy.initial_state(batch_size=tf.constant(batch))
        for timestep in range(_CHECKED_TIMESTEPS):
            inputs = {**_random_inputs(policy.signatures.inputs, spec, batch, rng), **state}
            inputs["first"] = tf.constant(rng.random(batch) < (1 if timestep == 0 else 0.2))
            wanted = policy.act(**inputs)
            try:
                values = session.run(None, {name: value.numpy() for name, value in inputs.items()})
            except Exception as error:  # As above.
                raise _refusal("onnxruntime cannot run the converted policy", error) from error
            found = dict(zip((output.name for output in session.get_outputs()), values, strict=True))
            for name, value in wanted.items():
                if not _same(found[_output(name, policy)], value.numpy()):
                    raise CallboardError(f"the ONNX model acts differently from the policy, in {name}: {_AS_MODEL}")
            state = {name: wanted[name] for name in state}


def _random_inputs(
    inputs: TensorSpecs, spec: EnvironmentSpec, batch: int, rng: np.random.Generator
) -> dict[str, tf.Tensor]:
    observation = dict(zip(leaf_names("observation", spec.observation), tree.flatten(spec.observation), strict=True))
    values = {name: _random_array(leaf, batch, rng) for name, leaf in observation.items()}
    values |= {"reward": rng.normal(size=batch), "discount": np.ones(batch), "last": np.zeros(batch)}
    return {
        name: tf.constant(value.astype(inputs[name].dtype.as_numpy_dtype))
        for name, value in values.items()
        if name in inputs
    }


def _random_array(leaf: dm_specs.Array, batch: int, rng: np.random.Generator) -> np.ndarray:
    shape, kind = (batch, *leaf.shape), np.dtype(leaf.dtype).kind
    if isinstance(leaf, dm_specs.DiscreteArray | MultiDiscreteArray):
        return rng.integers(0, leaf.num_values, shape)
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    # Bounds that are far away, or none, say nothing of what observations are like.
    low, high = (
        np.broadcast_to(np.clip(getattr(leaf, bound, other), -1e3, 1e3), leaf.shape).astype(np.float64)
        for bound, other in (("minimum", -1e3), ("maximum", 1e3))
    )
    low, high = (
        np.where(low == -1e3, np.minimum(-3, high - 1), low),
        np.where(high == 1e3, np.maximum(3, low + 1), high),
    )
    if kind in "iu":
        return rng.integers(low.astype(np.int64), high.astype(np.int64) + 1, shape)
    return rng.uniform(low, high, shape)


def _same(found: np.ndarray, wanted: np.ndarray) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if wanted.dtype.kind != "f":
        return np.array_equal(found, wanted)
    return np.allclose(found, wanted, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(wanted).max(initial=0)), equal_nan=True)


def _refusal(problem: str, error: Exception) -> CallboardError:
    reason = first_line(error) or type(error).__name__
    return CallboardError(f"{problem}: {reason}; {_AS_MODEL}")


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    """Keeps a logger silent meanwhile."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
