"""The weights of a policy, by name and in files."""

import pathlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...agents.agent import Policy
from ...agents.variables.finite_checks import NotFiniteError, check_weights
from ...agents.variables.weight_names import weight_names
from ...errors import CallboardError, unknown
from ...files.atomic_files import file_draft
from ...files.guarded_files import read_arrays, write_arrays

_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    MemoryError,
)
"""Errors that NumPy and `zipfile` raise for a file that is damaged."""
_NUMBERS = "biuf"
"""Kinds of NumPy types that weights have."""


class SavedPolicy(NamedTuple):
    """The contents of a file of weights."""

    names: list[str]
    values: list[np.ndarray]
    further: dict[str, Any]
    """The additional values that were passed to `save_policy`."""


def save_policy(path: pathlib.Path, policy: Policy, **also: Any) -> None:
    """Writes a policy's weights, in order, to an `.npz` file, atomically.

    Raises:
      NotFiniteError: a weight is NaN or infinite; the file is unchanged.
    """
    with file_draft(path) as draft:
        write_weights(draft, policy, **also)


def write_weights(path: pathlib.Path, policy: Policy, **also: Any) -> None:
    """Writes what `save_policy` writes, without a draft.

    Raises:
      NotFiniteError: a weight is NaN or infinite; nothing was written.
    """
    by_name = weights_by_name(policy)
    check_weights(by_name, by_name.values())
    weights = {f"weight_{index:04d}": value for index, value in enumerate(by_name.values())}
    write_arrays(path, names=np.array(list(by_name)), **weights, **also)


def read_policy(path: pathlib.Path) -> SavedPolicy:
    """Reads a file written by `save_policy`.

    Raises:
      FileNotFoundError: there is no such file.
      CallboardError: the file is damaged, or a weight in it is NaN or infinite.
    """
    try:
        content = read_arrays(path)
        named = content.pop("names")
        if named.ndim != 1 or len(named) > len(content):
            raise ValueError("it does not name its weights")
        names = [str(name) for name in named]
        values = [content.pop(f"weight_{index:04d}") for index in range(len(names))]
        if any(value.dtype.kind not in _NUMBERS for value in values):
            raise ValueError("a weight is not made of numbers")
        check_weights(names, values)
    except FileNotFoundError:
        raise
    except (*_DAMAGE, NotFiniteError) as error:
        reason = f": {error}" if isinstance(error, NotFiniteError) else ""
        raise CallboardError(f"{path} is damaged{reason}; replace it by a copy, or take another checkpoint") from error
    return SavedPolicy(names, values, content)


def load_weights(path: pathlib.Path, variables: Sequence[tf.Variable]) -> None:
    """Loads a policy's weights into variables of the same shapes.

    Raises:
      CallboardError: the file is damaged, or a shape differs (names the first such weight).
    """
    names, values, _ = read_policy(path)
    for name, value, variable in zip(names, values, variables, strict=False):
        if value.shape != tuple(variable.shape):
            raise CallboardError(
                f"the network has changed since {path} was written: {name} was {value.shape} and is now "
                f"{tuple(variable.shape)}; continue with the settings of the run, or begin a new one"
            )
    if len(values) != len(variables):
        raise CallboardError(
            f"the network has changed since {path} was written: it had {len(values)} weights and has now "
            f"{len(variables)}; continue with the settings of the run, or begin a new one"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def weights_by_name(policy: Policy) -> dict[str, np.ndarray]:
    """Returns the values of a policy's variables, in order, by the names of `weight_names`."""
    variables = policy.variables
    return dict(zip(weight_names(policy, variables), (variable.numpy() for variable in variables), strict=True))


def assign_weights(policy: Policy, weights: Mapping[str, np.ndarray]) -> None:
    """Assigns weights to a policy's variables by name; variables that are not named keep their values.

    Raises:
      CallboardError: a name is unknown, a shape differs, or a value is not finite; nothing was assigned.
    """
    named = dict(zip(weight_names(policy, policy.variables), policy.variables, strict=True))
    for name, value in weights.items():
        if name not in named:
            raise unknown("weight", name, named)
        if np.shape(value) != tuple(named[name].shape):
            raise CallboardError(
                f"the weight {name} must have the shape {tuple(named[name].shape)}, not {np.shape(value)}"
            )
    try:
        check_weights(weights, map(np.asarray, weights.values()))
    except NotFiniteError as error:
        raise CallboardError(f"{error}: set finite weights") from error
    for name, value in weights.items():
        named[name].assign(value)
