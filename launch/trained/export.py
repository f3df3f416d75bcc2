"""Exports the policy of a run, which then acts without Callboard, and reads exported SavedModels."""

import errno
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...agents.agent import Policy
from ...agents.agent_names import agent_name
from ...data import Nest, Timestep
from ...environments.batches.spec_files import format_spec, parse_spec
from ...errors import CallboardError, check_text, writing
from ...files.atomic_files import directory_draft
from ...files.guarded_files import read_regular
from ...specs import EnvironmentSpec
from ..experiments.parts.acting_part import ActingPart
from ..processes.forked_process import check_tensorflow_works
from ..run_directory.file_errors import file_error
from ..run_directory.layout import RunDirectory
from ..saved.saved_policies import policy_file, restored_policy, saved_spec
from .onnx_export import check_onnx, quiet, save_policy_as_onnx
from .traced_policy import Signatures, leaf_names, trace_policy

ACT = "serving_default"
"""Name of the signature that acts, the default one of TensorFlow Serving."""
INITIAL_STATE = "initial_state"
ENVIRONMENT = "assets.extra/environment.json"
"""File in the SavedModel with the environment's spec, for `load_policy`; TensorFlow leaves this folder to others."""

Format = Literal["saved-model", "onnx"]


class Export(NamedTuple):
    """The result of an export."""

    policy: pathlib.Path
    """The file from which the weights were loaded."""
    signatures: Signatures


def export_run(
    experiment: ActingPart,
    run_directory: RunDirectory,
    path: pathlib.Path,
    checkpoint: str,
    form: Format = "saved-model",
) -> Export:
    """Exports the policy of a run, which acts as in the experiment's evaluations.

    Args:
      experiment: experiment of the run.
      run_directory: directory of the run.
      path: directory of the export, new or empty.
      checkpoint: `best`, `latest` or a learner step.
      form: what is written.

    Raises:
      CallboardError: there is no such checkpoint, `path` is a file or a directory that is not empty, or the policy has
        no such form.
    """
    check_text(str(path.absolute()), "the export is named")  # TensorFlow takes no bytes that are no UTF-8.
    if path.is_dir() and any(path.iterdir()):
        raise CallboardError(f"{path} is not empty; name a new directory")
    if path.exists() and not path.is_dir():
        raise CallboardError(f"{path} is a file; name a new directory")
    if path.suffix == ".onnx":
        fix = "in which policy.onnx is written" if form == "onnx" else "with --format onnx for that model"
        raise CallboardError(f"{path} is named as an ONNX model: name a directory, {fix}")
    if form == "onnx":
        check_onnx()
    weights = policy_file(run_directory, checkpoint)
    # The environment of a run from before specs were saved is made once.
    layout = experiment.acting_layout(saved_spec(run_directory))
    policy, agent = restored_policy(experiment, layout, weights), experiment.agent
    spec = agent.acting_spec(layout.spec)
    if form == "saved-model":
        return Export(weights, save_policy_as_model(policy, spec, path))
    traced = trace_policy(policy, spec)
    if traced.samples:
        fix = "set epsilon to 0" if agent.evaluation_rate() else "set the mode to greedy"
        raise CallboardError(f"an ONNX model cannot sample, as this policy does in evaluations: {fix}")
    about = {"agent": agent_name(agent), "mode": experiment.evaluation_mode}
    return Export(weights, save_policy_as_onnx(traced, spec, path, about))


def save_policy_as_model(policy: Policy, spec: specs.EnvironmentSpec, path: pathlib.Path) -> Signatures:
    """Writes a policy as a SavedModel, atomically.

    Its signatures are those of `trace_policy`.

    Args:
      policy: the policy, in the mode in which it is to act.
      spec: spec of its environment.
      path: a directory that does not exist or is empty.

    Raises:
      CallboardError: it cannot be written.
    """
    traced = trace_policy(policy, spec)
    model = tf.Module()
    # Only the weights, not the layers: a program that loads the model does not need their classes.
    model.weights = traced.weights
    _write(path, model, {ACT: traced.act, INITIAL_STATE: traced.initial_state}, format_spec(spec))
    return traced.signatures


def _write(path: pathlib.Path, model: tf.Module, signatures: Mapping[str, Any], environment: str) -> None:
    with writing(path), directory_draft(path.absolute()) as draft:
        try:
            with quiet("absl"):  # Its warning is of names in small letters, which no caller uses.
                tf.saved_model.save(model, str(draft), signatures=signatures)
        except tf.errors.OpError as error:
            raise OSError(errno.EIO, file_error(error)) from error
        (draft / ENVIRONMENT).parent.mkdir()
        (draft / ENVIRONMENT).write_text(environment)


class ExportedPolicy:
    """The policy in a SavedModel, as an `agents.agent.Policy`; its state, if it has one, is a dictionary.

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
        return dict(self._initial_state(batch_size=tf.constant(batch_size, tf.int32))) or ()

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        named = dict(zip(self._observation, tree.flatten(timestep.observation), strict=True))
        rest = {"reward": timestep.reward, "discount": timestep.discount, "first": timestep.first}
        rest["last"] = timestep.last
        inputs = {name: value for name, value in {**named, **rest, **dict(state)}.items() if name in self._inputs}
        outputs = self._act(**inputs)
        action = tree.unflatten_as(self._spec.action, [outputs[name] for name in self._action])
        return action, (), {name: outputs[name] for name in state} or ()


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
    check_tensorflow_works()
    try:
        model = tf.saved_model.load(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CallboardError(f"the SavedModel {path} cannot be read: {reason}; export the policy again") from error
    return LoadedExport(ExportedPolicy(model, spec), spec)
