"""Reads policies that `export` has written."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
import tree

from ...data import Nest, Timestep
from ...environments.batches.spec_files import parse_spec
from ...errors import CallboardError
from ...files.guarded_files import read_regular
from ...specs import EnvironmentSpec
from .export import ACT, ENVIRONMENT, INITIAL_STATE, leaf_names


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
