"""The fields of a dataclass as options of a command, as those of launchers are."""

import argparse
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError
from ...nested_settings import Field
from ...setting_types import described
from ..experiments.option_parsing import converted_text, option_name
from ..settings import plain

_LISTS = (list[str],)


def add_fields(parser: argparse.ArgumentParser, fields: Mapping[str, Field]) -> None:
    """Adds an option for every field, with its description, type and default as help.

    A flag has `--NAME` and `--no-NAME`; an option of a list of texts may be given several times.
    """
    for key, field in fields.items():
        shown = "needed" if field.default is dataclasses.MISSING else json.dumps(plain(field.default))
        settings: dict[str, Any] = {"dest": key, "help": f"{field.text} ({shown})".replace("%", "%%")}
        if field.hint is bool:
            parser.add_argument(option_name(key), action="store_const", const="true", **settings)
            parser.add_argument(
                option_name(f"no_{key}"), dest=key, action="store_const", const="false", help=argparse.SUPPRESS
            )
        else:
            action = "append" if field.hint in _LISTS else "store"
            parser.add_argument(option_name(key), action=action, metavar=key.rpartition("_")[2].upper(), **settings)


def field_values(known: argparse.Namespace, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Returns the values of the options of `add_fields` that were given, by the names of their fields.

    Raises:
      CallboardError: a value does not match its field.
    """
    values: dict[str, Any] = {}
    for key, field in fields.items():
        text = getattr(known, key)
        if text is None:
            continue
        if text == "":  # It would be read as null.
            raise CallboardError(f"{option_name(key)} needs a value: {described(field.hint)}")
        try:
            values[key] = text if isinstance(text, list) else converted_text(key, text, field.hint)
        except CallboardError as error:
            if not str(error).startswith(f"{key} must be"):
                raise
            raise CallboardError(f"{option_name(key)} must be {described(field.hint)}, not {text!r}") from error
    return values
