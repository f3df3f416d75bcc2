"""Validation of environment options against a dataclass."""

from collections.abc import Mapping
from typing import Any, TypeVar

from ...errors import CallboardError
from ...settings.setting_types import converted, field_types
from .user_errors import unknown_option

Settings = TypeVar("Settings")


def read_options(name: str, options: Mapping[str, Any], settings: type[Settings]) -> Settings:
    """Converts a user's options to an instance of the dataclass `settings`.

    Args:
      name: name of the environment, for messages.
      options: the user's options by name.
      settings: a dataclass whose fields are annotated with the types of `setting_types`.  Its `__post_init__` raises
        `ValueError` for values that do not fit each other.

    Raises:
      CallboardError: if an option is unknown, of the wrong type, or out of range.
    """
    hints = field_types(settings)
    values = {}
    for key, value in options.items():
        if key not in hints:
            raise unknown_option(name, str(key), hints)
        values[key] = converted(f"environment {name!r}: {key}", value, hints[key])
    try:
        return settings(**values)
    except ValueError as error:
        raise CallboardError(f"environment {name!r}: {error}") from error
