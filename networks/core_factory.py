"""Cores and heads made from the names in settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import specs
from ..errors import CallboardError, unknown
from .gtrxl import GTrXLCore
from .network_settings import CORES
from .own_parts import BUILT_WITH, check_own_part, make_own_part
from .recurrent import Core, FeedForwardCore, GRUCore, LSTMCore

_CORE_METHODS = ("build", "initial_state", "step", "unroll")


def make_core(core: str = "none", lstm_size: int = 256, core_options: Mapping[str, Any] = MappingProxyType({})) -> Core:
    """Makes a core.

    Args:
      core: `none`, `lstm`, `gru`, `gtrxl` or `package.module:factory`, which returns a `recurrent.Core`.
      lstm_size: units of the LSTM or GRU, or features of the GTrXL.
      core_options: arguments of `GTrXLCore` or of the factory by name.

    Raises:
      CallboardError: if the name is unknown, or the factory returns something other than a core.
    """
    if ":" in core:
        made = make_own_part("core", core, core_options)
        missing = [part for part in _CORE_METHODS if not hasattr(made, part)]
        if missing:
            raise CallboardError(
                f"core {core!r} must return a callboard.networks.recurrent.Core, and {type(made).__name__} has no "
                f"{', '.join(missing)}"
            )
        return made
    if core not in CORES:
        raise unknown("core", core, CORES)
    if core == "gtrxl":
        return GTrXLCore(lstm_size, **core_options)
    if core == "gru":
        return GRUCore(lstm_size)
    return LSTMCore(lstm_size) if core == "lstm" else FeedForwardCore()


def make_own_head(head: str, spec: specs.EnvironmentSpec, options: Mapping[str, Any], kind: str = "head") -> Any:
    """Makes the head that `package.module:factory` returns for a spec and options.

    Args:
      head: the factory.
      spec: its first argument.
      options: its other arguments, by name.
      kind: name of the setting, for messages.

    Raises:
      CallboardError: the factory does not exist, does not take these options, or returns no module.
    """
    made = make_own_part(kind, head, options, spec)
    # A model of Keras raises an error if the attribute is read before its first call.
    if not (callable(made) and "trainable_variables" in dir(made)):
        raise CallboardError(f"{kind} {head!r} must return a module that maps features, not {type(made).__name__}")
    return made


def check_outputs(
    head: str,
    expected: Mapping[str, tuple[int, ...]],
    outputs: Any,
    kind: str = "head",
    used_by: str = "the environment's action",
    rows: int | None = BUILT_WITH,
) -> None:
    """Checks what a head of the user's own has made of features.

    Args:
      head: its name, for the message.
      expected: shapes of the outputs without the batch axis, by the name of a field; "" for outputs that are a tensor.
      outputs: the outputs.
      kind: name of the setting that names the head, for the message.
      used_by: what the outputs are for, for the message.
      rows: batch of the features; None if it is not known.

    Raises:
      CallboardError: an output is missing, or has another shape.
    """
    for name, shape in expected.items():
        found: Any = getattr(outputs, name, None) if name else outputs
        given = list(found.shape) if hasattr(found, "shape") else None
        if not given or given[1:] != list(shape) or (None not in (rows, given[0]) and given[0] != rows):
            what = f"{name!r} of its outputs" if name else "its output"
            wanted = ", ".join(["N", *map(str, shape)])
            raise CallboardError(
                f"{kind} {head!r} does not fit {used_by}: {what} must have the shape [{wanted}], and is "
                + (type(outputs).__name__ if given is None else f"{given}{f' for N = {rows}' if rows else ''}")
            )


def check_own_parts(spec: specs.EnvironmentSpec, settings: Any) -> None:
    """Checks that the core and the heads in `network_settings` can be made, without making them.

    Raises:
      CallboardError: a factory does not exist, or does not take its options.
    """
    core, head = getattr(settings, "core", ""), getattr(settings, "head", None)
    if ":" in core:
        check_own_part("core", core, settings.core_options)
    if head is not None:
        check_own_part("head", head, settings.head_options, spec)
    critic_head = getattr(settings, "critic_head", None)
    if critic_head is not None:
        check_own_part("critic_head", critic_head, settings.critic_head_options, spec)
