"""Options of a run's settings, merged into nested values as YAML has them.

A setting has a flat name, such as `agent.optimizer.learning_rate`, by which it is found in the nested values.  Settings
in a group and entries of a setting that is a mapping, such as `env_options`, are changed alike, one by one or together.
"""

import contextlib
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import CallboardError, unknown_setting
from ...settings.nested_settings import Field, merged_values
from ...settings.setting_descriptions import described, is_mapping, is_union, shown
from ...settings.setting_types import converted, texts_of
from .yaml_files import parse_yaml

_REMOVE = "no_"
"""Prefix of options that switch a flag off or remove an entry: `--no-evaluator`, `--no-env-options.size`."""


def option_name(key: str) -> str:
    """Returns the option of a setting: `--max-steps` of `max_steps`."""
    return f"--{key.replace('_', '-')}"


class GivenOption(NamedTuple):
    """An option as it was given.

    Attributes:
      name: its name, without the dashes before it; empty for a word that is no option.
      text: its value; None if it stands alone.
      words: the words of the command line that it consists of.
    """

    name: str
    text: str | None
    words: list[str]

    @property
    def key(self) -> str:
        """The flat name, such as `env_options.size`; names of entries may have had dashes."""
        return self.name.replace("-", "_")

    @property
    def setting(self) -> str:
        """The first part of the flat name, without `no_`."""
        return self.key.removeprefix(_REMOVE).partition(".")[0]


def given_options(words: Sequence[str]) -> list[GivenOption]:
    """Returns the options on a command line: `--name=value`, `--name value`, or `--name` before another one."""
    found = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            found.append(GivenOption("", None, [word]))
        elif equals or not remaining or remaining[0].startswith("--"):
            found.append(GivenOption(name, text if equals else None, [word]))
        else:
            found.append(GivenOption(name, remaining[0], [word, remaining.pop(0)]))
    return found


def option_texts(words: Sequence[str]) -> dict[str, str | None]:
    """Returns the values of the options on a command line as text, by flat name; None of those that stand alone."""
    return {option.key: option.text for option in given_options(words) if option.name}


def merge_options(values: Mapping[str, Any], options: Sequence[str], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Returns nested values with options merged into them.

    An option whose setting takes one text or several may be repeated.

    Args:
      values: nested values of settings, which are not changed.
      options: for example `["--agent.optimizer.learning-rate", "3e-4"]`.
      fields: all settings by flat name.

    Raises:
      CallboardError: an option is unknown, or its value does not match its setting.
    """
    merged = dict(values)
    repeated: dict[str, Any] = {}
    for option in given_options(options):
        name, path, text = option.name, option.key, option.text
        if not name:
            raise CallboardError(
                f"{shown(option.words[0])} is no option: options begin with --, as in --env CartPole-v1"
            )
        is_removal = path.startswith(_REMOVE) and not _setting_of(path, fields)
        path = path.removeprefix(_REMOVE) if is_removal else path
        key = _setting_of(path, fields)
        if not key:
            raise unknown_setting("option", f"--{name}", path, {known: option_name(known) for known in fields})
        entries = _entries(name, path, key)
        hint = Any if entries or key not in fields else fields[key].hint
        place = [*key.split("."), *entries]
        if is_removal:
            if text is not None:
                raise CallboardError(f"--{name} takes no value")
            if entries:
                _remove(merged, place, name)
                continue
            if hint is not bool:
                raise CallboardError(f"--{name} is no flag: {option_name(key)} is {described(hint)}")
            text = "false"
        elif text is None:
            if hint is not bool:
                raise CallboardError(f"--{name} needs a value: {described(hint)}")
            text = "true"
        value = converted_text(".".join(place), text, hint)
        if _takes_texts(hint):
            value = repeated[key] = (*texts_of(repeated[key]), *texts_of(value)) if key in repeated else value
        for part in reversed(place):
            value = {part: value}
        merged = merged_values(merged, value, fields)
    return merged


def converted_text(key: str, text: str, hint: Any) -> Any:
    """Converts the text of an option, which is parsed as YAML unless the setting is text, as `converted` does."""
    kinds = typing.get_args(hint) if is_union(hint) else (hint,)
    others = [kind for kind in kinds if kind not in (str, pathlib.Path)]
    try:
        value = parse_yaml(text) if others else text
    except ValueError as error:
        ends = text.strip()[:1] + text.strip()[-1:]
        if ends in ("{}", "[]") if hint is Any else len(others) == len(kinds) and ends[:1] in ("{", "["):
            raise CallboardError(f"{key}: {shown(text)} is not valid YAML: {error}") from error
        value = text
    if len(others) < len(kinds):
        for kind in others if text.strip() else ():
            with contextlib.suppress(CallboardError):
                return converted(key, value, kind)
        value = text
    return converted(key, value, hint)


def _setting_of(path: str, fields: Mapping[str, Field]) -> str:
    """Returns the setting or group that an option's name refers to, as a whole or by one of its entries, or ""."""
    if path in fields or any(key.startswith(f"{path}.") for key in fields):
        return path
    return next((key for key in fields if path.startswith(f"{key}.") and is_mapping(fields[key].hint)), "")


def _takes_texts(hint: Any) -> bool:
    """Returns whether a setting takes one text or several."""
    return is_union(hint) and str in typing.get_args(hint) and tuple[str, ...] in typing.get_args(hint)


def _entries(name: str, path: str, key: str) -> list[str]:
    """Returns the path of an entry inside a setting, as the user wrote it: names of entries may contain dashes."""
    rest = path[len(key) :]
    entries = name[len(name) - len(rest) :].split(".")[1:] if rest else []
    if not all(entries):
        raise CallboardError(f"--{name} names no entry of {option_name(key)}; write {option_name(key)}.NAME VALUE")
    return entries


def _remove(values: dict[str, Any], place: Sequence[str], name: str) -> None:
    """Removes an entry; the mappings around it are copied first."""
    within: Any = values
    for part in place[:-1]:
        inner = within.get(part)
        within[part] = within = dict(inner) if isinstance(inner, Mapping) else {}
    if place[-1] not in within:
        raise CallboardError(f"--{name} removes an entry that is not set: there are {', '.join(within) or 'none'}")
    del within[place[-1]]
