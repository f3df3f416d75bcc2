"""Reads and writes settings as YAML: plain values only, of limited size, which round-trip unchanged.

A file that is read cannot run code, name a Python object, or expand: aliases (`*name`) and tags other than YAML's own
plain ones are rejected, and keys must be text.
"""

import errno
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ...errors import CallboardError, type_text
from ...files.guarded_files import read_regular

_MOST_BYTES = 2**20
_MOST_DEPTH = 50
_NAMES = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}
_TAG = "tag:yaml.org,2002:"
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
# PyYAML reads YAML 1.1, where 1:30 is 90, 010 is 8, and 1e-3 is text: users mean none of these.
_INT = r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+"
_FLOAT = (
    r"[-+]?(([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)


class _Dumper(yaml.SafeDumper):
    """Writes YAML that is read back unchanged: text that would be read as a number is in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, _text in (("int", _INT), ("float", _FLOAT)):
    _Dumper.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_text})$"), list("-+0123456789."))


def read_yaml(path: pathlib.Path, links: bool = True) -> Any:
    """Reads the plain values in a YAML file.

    Args:
      path: path of the file.
      links: whether the path may be a symbolic link.

    Raises:
      CallboardError: the file does not exist, is not a regular file, too large, not UTF-8, or not plain YAML.
    """
    try:
        if path.is_dir():
            raise CallboardError(f"{path} is a directory: name a YAML file")
        content = read_regular(os.path.realpath(path) if links else path, _MOST_BYTES)
    except (OSError, ValueError) as error:  # ValueError: the path contains a null character.
        if getattr(error, "errno", None) == errno.EFBIG:
            text = f"{path} has more than {_MOST_BYTES:,} bytes: that is not a file of settings"
            raise CallboardError(text) from error
        raise CallboardError(f"{str(path)!r} cannot be read: {_reason(error)}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CallboardError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise CallboardError(f"{path} is not valid YAML: {error}") from error


def parse_yaml(text: str) -> Any:
    """Parses the plain values in a text.

    Raises:
      ValueError: the text is not plain YAML; the message is one line.
    """
    try:
        parsed = yaml.parse(text, yaml.SafeLoader)
        events = (event for event in parsed if not isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent))
        value = _value(next(events), events) if next(events, None) is not None else None
        if len(list(itertools.islice(events, 2))) > 1:
            raise ValueError("it has several documents: write one")
        return value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context).split())
        raise ValueError(f"line {mark.line + 1}: {problem}" if mark else problem) from error
    except yaml.reader.ReaderError as error:
        raise ValueError(f"{error.reason}: {chr(int(error.character))!a}") from error


def _value(event: Any, events: Iterator[Any], depth: int = 0) -> Any:
    """Returns the value that begins with an event of the parser."""
    if isinstance(event, yaml.AliasEvent):
        raise _problem(event, f"*{event.anchor}: aliases are not read, write the value once more")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if depth > _MOST_DEPTH:
        raise _problem(event, "it is nested too deeply")
    if event.tag not in (None, "!", f"{_TAG}seq", f"{_TAG}map"):
        raise _problem(event, f"the tag {event.tag} is not one of plain values")
    inner = itertools.takewhile(lambda one: not isinstance(one, yaml.CollectionEndEvent), events)
    if isinstance(event, yaml.SequenceStartEvent):
        return [_value(item, events, depth + 1) for item in inner]
    found: dict[str, Any] = {}
    for key in inner:
        name = _scalar(key) if isinstance(key, yaml.ScalarEvent) else None
        if not isinstance(name, str):
            raise _problem(key, f"the key {getattr(key, 'value', 'here')!r} is not text: put it in quotes")
        if name in found:
            raise _problem(key, f"the key {name!r} stands here twice")
        found[name] = _value(next(events), events, depth + 1)
    return found


def _scalar(event: Any) -> Any:
    """Returns the value of a text, which is text itself if it has quotes or a tag that says so."""
    if event.tag == f"{_TAG}str" or (event.tag is None and not event.implicit[0]):
        return event.value
    value, text = event.value, event.value.replace("_", "")
    try:
        if value in _WORDS:
            value = _WORDS[value]
        elif re.fullmatch(_INT, value):
            value = int(text, 16 if text.startswith("0x") else 10)
        elif re.fullmatch(_FLOAT, value):
            value = float(text.replace(".", "") if text[-1] in "fFnN" else text)
    except ValueError as error:  # For example of thousands of digits.
        raise _problem(event, "a number is too long") from error
    if event.tag not in (None, "!", f"{_TAG}{_NAMES.get(type(value))}"):
        raise _problem(event, f"a value is not what its tag says, or the tag {event.tag} is not one of plain values")
    return value


def _problem(event: Any, text: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, text, event.start_mark)


def format_yaml(value: Any, marked: bool = False) -> str:
    """Formats plain values as YAML that `parse_yaml` reads back unchanged; `marked` adds start and end marks.

    Raises:
      ValueError: a value is not plain.
    """
    _check_plain(value)
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, explicit_start=marked, explicit_end=marked)


def _check_plain(value: Any, depth: int = 0) -> None:
    if depth > _MOST_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r} is not text: put it in quotes")
            _check_plain(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, depth + 1)
    elif type(value) not in _NAMES:
        raise ValueError(f"{value!r} is {type_text(value)}: write text, a number, true, false, a list or a map")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
