"""Exports the policy of a run as a SavedModel, which acts without Callboard."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...agents.agent import Policy
from ...data import Nest, Timestep
from ...environments.batches.spec_files import format_spec
from ...errors import CallboardError
from ...files.atomic_files import directory_draft
from ..experiments.parts.acting_part import ActingPart
from ..plain_names import plain_names
from ..run_directory.layout import RunDirectory
from ..saved.saved_policies import policy_file, restored_policy, saved_spec

ACT = "serving_default"
"""Name of the signature that acts, the default one of TensorFlow Serving."""
INITIAL_STATE = "initial_state"
ENVIRONMENT = "assets.extra/environment.json"
"""File in the SavedModel with the environment's spec, for `load_policy`; TensorFlow leaves this folder to others."""

TensorSpecs = dict[str, tf.TensorSpec]


class Signatures(NamedTuple):
    """Inputs and outputs of a policy's SavedModel, by name; the batch axis is None."""

    inputs: TensorSpecs
    outputs: TensorSpecs
    state: TensorSpecs
    """Outputs of `initial_state`, which takes `batch_size`; also inputs and outputs of the acting signature."""


class Export(NamedTuple):
    """The result of an export."""

    policy: pathlib.Path
    """The file from which the weights were loaded."""
    signatures: Signatures


def export_run(experiment: ActingPart, run_directory: RunDirectory, path: pathlib.Path, checkpoint: str) -> Export:
    """Exports the policy of a run, which acts as in the run's evaluations.

    Args:
      experiment: experiment of the run.
      run_directory: directory of the run.
      path: directory of the SavedModel, new or empty.
      checkpoint: `best`, `latest` or a learner step.

    Raises:
      CallboardError: there is no such checkpoint, or `path` is a file or a directory that is not empty.
    """
    if path.is_dir() and any(path.iterdir()):
        raise CallboardError(f"{path} is not empty; name a new directory")
    if path.exists() and not path.is_dir():
        raise CallboardError(f"{path} is a file; name a new directory")
    weights = policy_file(run_directory, checkpoint)
    # The environment of a run from before specs were saved is made once.
    layout = experiment.acting_layout(saved_spec(run_directory))
    policy = restored_policy(experiment, layout, weights)
    return Export(weights, save_policy_as_model(policy, experiment.agent.acting_spec(layout.spec), path))


def save_policy_as_model(policy: Policy, spec: specs.EnvironmentSpec, path: pathlib.Path) -> Signatures:
    """Writes a policy as a SavedModel, atomically.

    Each leaf of a nest has its own name, such as `observation_camera` (see `leaf_names`).  The inputs from the timestep
    are the observation, `first`, and the other fields that the policy uses.  A policy that samples its actions uses a
    new random seed in every call.

    Args:
      policy: the policy, in the mode in which it is to act.
      spec: spec of its environment.
      path: a directory that does not exist or is empty.
    """
    observation = _named("observation", specs.tensor_spec(spec.observation, (None,)))
    state_nest = tree.map_structure(_with_free_batch, policy.initial_state(1))
    state = _named("state", state_nest)
    number, flag = tf.TensorSpec((None,), tf.float32), tf.TensorSpec((None,), tf.bool)
    optional = {"reward": number, "discount": number, "last": flag}
    given: Mapping[str, tf.Tensor] = {}

    def act(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        nonlocal given
        given = inputs
        batch_size = tf.shape(inputs["first"])[0]
        timestep = Timestep(
            observation=tree.unflatten_as(spec.observation, [inputs[name] for name in observation]),
            reward=inputs.get("reward", tf.zeros((batch_size,))),
            discount=inputs.get("discount", tf.ones((batch_size,))),
            first=inputs["first"],
            last=inputs.get("last", tf.zeros((batch_size,), tf.bool)),
        )
        before = tree.unflatten_as(state_nest, [inputs[name] for name in state])
        seed = tf.random.uniform((2,), maxval=tf.int32.max, dtype=tf.int32)
        action, _, after = policy(timestep, before, tf.range(batch_size), seed)
        return {**_named("action", action), **dict(zip(state, tree.flatten(after), strict=True))}

    def trace(inputs: TensorSpecs) -> Any:
        return tf.function(act, autograph=False).get_concrete_function(**inputs)

    required = {**observation, **state, "first": flag}
    trace({**required, **optional})
    inputs = {**required, **{name: field for name, field in optional.items() if given[name].consumers()}}
    acting = trace(inputs)
    starting = tf.function(
        lambda batch_size: _named("state", policy.initial_state(batch_size)), autograph=False
    ).get_concrete_function(tf.TensorSpec((), tf.int32, "batch_size"))
    model = tf.Module()
    # Only the weights, not the layers: a program that loads the model does not need their classes.
    model.weights = list(policy.variables)
    _write(path, model, {ACT: acting, INITIAL_STATE: starting}, format_spec(spec))
    outputs = {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in acting.structured_outputs.items()}
    return Signatures(inputs, outputs, state)


def leaf_names(prefix: str, nest: Nest) -> list[str]:
    """Returns a name for each leaf of a nest, in the order of `tree.flatten`: the prefix, keys, fields and indices.

    They consist of ASCII letters, digits and `_` (see `plain_names`); empty keys are left out.
    """
    paths = [(prefix, *path) for path, _ in tree.flatten_with_path(nest)]
    return plain_names(["/".join(filter(None, map(str, path))) for path in paths])


def _named(prefix: str, nest: Nest) -> dict[str, Any]:
    return dict(zip(leaf_names(prefix, nest), tree.flatten(nest), strict=True))


def _with_free_batch(leaf: Any) -> tf.TensorSpec:
    return tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype)


def _write(path: pathlib.Path, model: tf.Module, signatures: Mapping[str, Any], environment: str) -> None:
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with directory_draft(path) as draft:
        tf.saved_model.save(model, str(draft), signatures=signatures)
        (draft / ENVIRONMENT).parent.mkdir()
        (draft / ENVIRONMENT).write_text(environment)
