"""Mistakes in the dataclasses of settings that users write, which `dataclasses` itself passes over."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from ..errors import CallboardError
from .setting_descriptions import shown


def check_annotations(kind: type) -> None:
    """Rejects a dataclass whose own settings or defaults would be ignored.

    Args:
      kind: the dataclass.

    Raises:
      CallboardError: it, or a base, gives a field of a base another default without an annotation, or has settings of
        its own and lacks the decorator; the message says what to write.
    """
    frozen = "(frozen=True)" if kind.__dataclass_params__.frozen else ""  # type: ignore[attr-defined]
    decorator = f"@dataclasses.dataclass{frozen}"
    for owner in kind.__mro__:
        bases = [base for base in owner.__mro__[1:] if dataclasses.is_dataclass(base)]
        inherited = {field.name for base in bases for field in dataclasses.fields(base)}
        if not inherited:
            continue
        decorated = "__dataclass_fields__" in vars(owner)
        annotations = inspect.get_annotations(owner)
        for name in sorted(inherited - set(annotations)):
            if name in vars(owner) and not inspect.ismemberdescriptor(vars(owner)[name]):
                value = vars(owner)[name]
                above = "" if decorated else f", and {decorator} above the class"
                hint = "Any" if value is None else type(value).__name__
                raise CallboardError(
                    f"{owner.__name__} has `{name} = {shown(value)}` without an annotation, which is ignored: write "
                    f"`{name}: {hint} = {shown(value)}`{above}"
                )
        if not decorated:
            for name in _own_settings(annotations):
                raise CallboardError(
                    f"{owner.__name__} has the setting {name!r}, but is no dataclass itself: write {decorator} above it"
                )


def check_only_fields(kind: type) -> None:
    """Rejects a dataclass of settings with arguments that it does not keep as fields.

    Raises:
      CallboardError: an argument is an `InitVar`, with which no changed copy could be made.
    """
    kept = {field.name for field in dataclasses.fields(kind)}
    for name, field in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]
        if name not in kept and "InitVar" in str(field.type):
            raise CallboardError(
                f"{kind.__name__} has the InitVar {name!r}, which a run's settings do not keep: annotate it without "
                "InitVar"
            )


def _own_settings(annotations: dict[str, Any]) -> Iterator[str]:
    return (name for name, hint in annotations.items() if not name.startswith("_") and "ClassVar" not in str(hint))
