"""Reads and writes settings as YAML: plain values only, of limited size, which round-trip unchanged.

A file that is read cannot run code, name a Python object, or expand: aliases (`*name`) and tags other than YAML's own
plain ones are rejected, and keys must be text.
"""

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import yaml

from ...errors import CallboardError
from ...guarded_files import open_regular

_MOST_BYTES = 2**20
_MOST_DEPTH = 50
_PLAIN = (str, int, float, bool, type(None))
_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
# PyYAML reads YAML 1.1, where 1:30 is 90, 010 is 8, and 1e-3 is text: users mean none of these.
_INT_TEXT = re.compile(r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+")
_FLOAT_TEXT = re.compile(
    r"[-+]?(([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)


class NotPlain(ValueError):
    """A value of a type that settings cannot have."""


class _Loader(yaml.SafeLoader):
    """Loads plain values."""

    depth = 0

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        # PyYAML needs about 15 s to fail on a few thousand brackets.
        if self.flow_level > _MOST_DEPTH:
            raise yaml.scanner.ScannerError(None, None, "it is nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"*{event.anchor}: aliases are not read, write the value once more", event.start_mark
            )
        if self.depth > _MOST_DEPTH:
            raise yaml.constructor.ConstructorError(None, None, "it is nested too deeply", self.peek_event().start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} stands here twice", key_node.start_mark
                    )
                seen.add(key_node.value)
                if key_node.tag == "tag:yaml.org,2002:null" or key_node.tag == _BOOL:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} is not text: put it in quotes", key_node.start_mark
                    )
        return super().construct_mapping(node, deep)

    def construct_float(self, node: Any) -> float:
        return float(self.construct_scalar(node).replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


class _Dumper(yaml.SafeDumper):
    """Writes YAML that `_Loader` reads back unchanged."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _with_own_numbers(resolvers: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        first: [pair for pair in pairs if pair[0] not in (_INT, _FLOAT, _TIMESTAMP)]
        for first, pairs in resolvers.items()
    }
    for first in "-+0123456789.":
        kept[first] = [*kept.get(first, ()), (_INT, _Whole(_INT_TEXT)), (_FLOAT, _Whole(_FLOAT_TEXT))]
    return kept


class _Whole:
    """A pattern that must match the whole text; PyYAML calls its `match`."""

    def __init__(self, pattern: re.Pattern[str]):
        self.match = pattern.fullmatch


_Loader.yaml_implicit_resolvers = _with_own_numbers(yaml.SafeLoader.yaml_implicit_resolvers)
_Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *pairs]
    for first, pairs in _Loader.yaml_implicit_resolvers.items()
}


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
        with open(open_regular(os.path.realpath(path) if links else path), "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path contains a null character.
        raise CallboardError(f"{str(path)!r} cannot be read: {_reason(error)}") from error
    if len(content) > _MOST_BYTES:
        raise CallboardError(f"{path} has more than {_MOST_BYTES:,} bytes: that is not a file of settings")
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
        value = yaml.load(text, _Loader)
        _check_plain(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context).split())
        raise ValueError(f"line {mark.line + 1}: {problem}" if mark else problem) from error
    except yaml.reader.ReaderError as error:
        raise ValueError(f"{error.reason}: {chr(int(error.character))!a}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except NotPlain as error:
        raise ValueError(str(error)) from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        # Raised by PyYAML's constructors for `!!int x`, or for a number with thousands of digits.
        raise ValueError("a value is not what its tag says, or too long") from error
    return value


def format_yaml(value: Any, marked: bool = False) -> str:
    """Formats plain values as YAML that `parse_yaml` reads back unchanged; `marked` adds start and end marks.

    Raises:
      ValueError: a value is not plain.
    """
    _check_plain(value)
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, explicit_start=marked, explicit_end=marked)


def _check_plain(value: Any, depth: int = 0) -> None:
    if depth > _MOST_DEPTH:
        raise NotPlain("it is nested too deeply")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotPlain(f"the key {key!r} is not text: put it in quotes")
            _check_plain(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, depth + 1)
    elif type(value) not in _PLAIN:
        raise NotPlain(f"{value!r} is a {type(value).__name__}: write text, a number, true, false, a list or a map")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
