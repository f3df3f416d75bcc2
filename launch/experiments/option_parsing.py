"""Command-line options of a run's settings, merged into their values.

Settings have flat names, such as `agent.optimizer.learning_rate`.  A setting that is a mapping, such as `env_options`,
is changed as a whole or entry by entry.
"""

import collections.abc
import contextlib
import copy
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import CallboardError, unknown_setting
from ...nested_settings import Field
from ...setting_reader import flat_values, group_of, settings_of_group
from ...setting_types import converted, described, is_union, shown
from .yaml_files import parse_yaml

_REMOVE = "no_"
"""Prefix of options that switch a flag off or remove an entry: `--no-evaluator`, `--no-env-options.size`."""


def option_name(key: str) -> str:
    """Returns the option of a setting: `--max-steps` of `max_steps`."""
    return f"--{key.replace('_', '-')}"


def apply_options(values: dict[str, Any], options: Sequence[str], fields: Mapping[str, Field]) -> None:
    """Merges options into `values`, by flat name.

    An option whose setting takes one text or several may be repeated.

    Args:
      values: values of settings, changed in place.
      options: for example `["--agent.optimizer.learning-rate", "3e-4"]`.
      fields: all settings by flat name.

    Raises:
      CallboardError: an option is unknown, or its value does not match its setting.
    """
    remaining = list(options)
    repeated: set[str] = set()
    while remaining:
        option = remaining.pop(0)
        name, equals, text = option[2:].partition("=")
        if not option.startswith("--") or not name:
            raise CallboardError(f"{shown(option)} is no option: options begin with --, as in --max-steps 1000")
        path = name.replace("-", "_")
        is_removal = path.startswith(_REMOVE) and not _setting_of(path, fields)
        path = path.removeprefix(_REMOVE) if is_removal else path
        key = _setting_of(path, fields)
        if not key:
            known = {known: option_name(known) for known in fields}
            raise unknown_setting("option", f"--{name}", path, known)
        entries = _entries(name, path, key)
        hint = fields[key].hint if key in fields else dict
        if is_removal:
            if equals:
                raise CallboardError(f"--{name} takes no value")
            _remove(values, key, entries, name, hint)
            continue
        alone = not remaining or remaining[0].startswith("--")
        if not equals and not (alone and hint is bool):
            if alone:
                raise CallboardError(f"--{name} needs a value: {described(Any if entries else hint)}")
            text = remaining.pop(0)
        elif not equals:
            text = "true"
        before = values.get(key)
        _set(values, key, entries, text, fields)
        if key in repeated:
            values[key] = (*_as_texts(before), *_as_texts(values[key]))
        elif _takes_texts(hint):
            repeated.add(key)


def converted_text(key: str, text: str, hint: Any) -> Any:
    """Converts the text of an option, which is parsed as YAML unless the setting is text, as `converted` does."""
    kinds = typing.get_args(hint) if is_union(hint) else (hint,)
    others = [kind for kind in kinds if kind not in (str, pathlib.Path)]
    try:
        value = parse_yaml(text) if others else text
    except ValueError:
        value = text
    if len(others) < len(kinds):
        for kind in others if text else ():
            with contextlib.suppress(CallboardError):
                return converted(key, value, kind)
        value = text
    return converted(key, value, hint)


def _setting_of(path: str, fields: Mapping[str, Field]) -> str:
    """Returns the setting that an option's name refers to, as a whole or by one of its entries, or ""."""
    if path in fields or group_of(path, fields):
        return path
    return next((key for key in fields if path.startswith(f"{key}.") and _is_mapping(fields[key].hint)), "")


def _is_mapping(hint: Any) -> bool:
    """Returns whether a setting has entries, or may have some."""
    kinds = typing.get_args(hint) if is_union(hint) else (hint,)
    return any(kind is dict or typing.get_origin(kind) in (dict, collections.abc.Mapping) for kind in kinds)


def _takes_texts(hint: Any) -> bool:
    """Returns whether a setting takes one text or several."""
    return is_union(hint) and str in typing.get_args(hint) and tuple[str, ...] in typing.get_args(hint)


def _as_texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _entries(name: str, path: str, key: str) -> list[str]:
    """Returns the path of an entry inside a setting, as the user wrote it: names of entries may contain dashes."""
    rest = path[len(key) :]
    entries = name[len(name) - len(rest) :].split(".")[1:] if rest else []
    if not all(entries):
        raise CallboardError(f"--{name} names no entry of {option_name(key)}; write {option_name(key)}.NAME VALUE")
    return entries


def _set(values: dict[str, Any], key: str, entries: list[str], text: str, fields: Mapping[str, Field]) -> None:
    if key not in fields:
        values |= flat_values(settings_of_group(key, converted_text(key, text, Any), fields), fields, f"{key}.")
        return
    value = converted_text(".".join([key, *entries]), text, Any if entries else fields[key].hint)
    for entry in reversed(entries):
        value = {entry: value}
    before = values.get(key)
    if entries and before is None:
        before = {}
    values[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value


def _remove(values: dict[str, Any], key: str, entries: list[str], name: str, hint: Any) -> None:
    if not entries:
        if hint is not bool:
            raise CallboardError(f"--{name} is no flag: {option_name(key)} is {described(hint)}")
        values[key] = False
        return
    within: Any = copy.deepcopy(values.get(key) or {})
    whole = within
    for entry in entries[:-1]:
        within = within.get(entry) if isinstance(within, Mapping) else None
    if not isinstance(within, dict) or entries[-1] not in within:
        names = ", ".join(within) if isinstance(within, Mapping) and within else "none"
        raise CallboardError(f"--{name} removes an entry that is not set: there are {names}")
    del within[entries[-1]]
    values[key] = whole


def _merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `settings` updated with `given`; mappings in both are merged recursively."""
    merged = dict(settings)
    for key, value in given.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged
