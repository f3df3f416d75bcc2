"""Exports the policy of a run as a SavedModel, which acts without Callboard, and reads such exports."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...agents.agent import Policy
from ...data import Nest, Timestep
from ...environments.batches.spec_files import format_spec, parse_spec
from ...errors import CallboardError
from ...files.atomic_files import directory_draft
from ...files.guarded_files import read_regular
from ...specs import EnvironmentSpec
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


class ExportedPolicy:
    """The policy in a SavedModel, as an `agents.agent.Policy`; its state is a dictionary.

    Args:
      model: the loaded SavedModel.
      spec: spec of the environment.

    Raises:
      CallboardError: the model has other signatures than those that `export` writes.
    """

    def __init__(self, model: tf.Module, spec: EnvironmentSpec):
        try:
            self._act, self._initial_state = model.signatures[ACT], model.signatures[INITIAL_STATE]
        except (KeyError, AttributeError) as error:
            raise CallboardError(f"the SavedModel has no signatures {ACT} and {INITIAL_STATE}: export it again") from (
                error
            )
        self._spec = spec
        self._observation = leaf_names("observation", spec.observation)
        self._action = leaf_names("action", spec.action)
        self._inputs = self._act.structured_input_signature[1]
        self._weights = list(model.weights)

    @property
    def variables(self) -> Sequence[tf.Variable]:
        return self._weights

    def initial_state(self, batch_size: int) -> Nest:
        return dict(self._initial_state(batch_size=tf.constant(batch_size, tf.int32)))

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        named = dict(zip(self._observation, tree.flatten(timestep.observation), strict=True))
        rest = {"reward": timestep.reward, "discount": timestep.discount, "first": timestep.first}
        rest["last"] = timestep.last
        inputs = {name: value for name, value in {**named, **rest, **state}.items() if name in self._inputs}
        outputs = self._act(**inputs)
        action = tree.unflatten_as(self._spec.action, [outputs[name] for name in self._action])
        return action, (), {name: outputs[name] for name in state}


class LoadedExport(NamedTuple):
    """A policy and the spec of its environment."""

    policy: ExportedPolicy
    spec: EnvironmentSpec


def is_export(path: pathlib.Path) -> bool:
    """Returns whether a directory contains a SavedModel."""
    return (path / "saved_model.pb").is_file()


def read_export(path: pathlib.Path) -> LoadedExport:
    """Reads a policy that `callboard export` has written.

    Raises:
      CallboardError: the directory contains another SavedModel, or one from before specs were saved, or it is damaged.
    """
    try:
        spec = parse_spec(read_regular(path / ENVIRONMENT).decode("utf-8"))
    except FileNotFoundError as error:
        raise CallboardError(
            f"{path} has no {ENVIRONMENT}: `callboard export` of this version writes it; export the policy again"
        ) from error
    except (OSError, ValueError) as error:
        raise CallboardError(f"{path / ENVIRONMENT} cannot be read: {error}; export the policy again") from error
    try:
        model = tf.saved_model.load(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CallboardError(f"the SavedModel {path} cannot be read: {reason}; export the policy again") from error
    return LoadedExport(ExportedPolicy(model, spec), spec)
