"""The settings of an agent that ships, read from its source: TensorFlow, which its module imports, is not imported."""

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

# What annotations and defaults of fields may be made of.
_KNOWN = {
    "Any": Any,
    "Literal": typing.Literal,
    "Mapping": Mapping,
    "Sequence": Sequence,
    "dataclasses": dataclasses,
    "pathlib": pathlib,
    "__builtins__": {kind.__name__: kind for kind in (bool, int, float, str, tuple, list, dict)},
}


@functools.cache
def declared_settings(path: str) -> type | None:
    """A dataclass with the fields, defaults and docstring of the one at `package.module:Class`.

    None where the source does not say it all: a class that inherits fields, or whose annotations or defaults need what
    its module imports.
    """
    module_name, _, class_name = path.partition(":")
    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    module = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return _dataclass_of(node)
    return None


def _dataclass_of(node: ast.ClassDef) -> type | None:
    if [ast.unparse(parent) for parent in node.bases] != ["Agent"]:
        return None
    fields: list[Any] = []
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            try:
                hint = _evaluated(statement.annotation)
                default = () if statement.value is None else (_evaluated(statement.value),)
            except Exception:  # A name that is not among the known ones, or what it would have been used for.
                return None
            fields.append((statement.target.id, hint, *default))
    made = dataclasses.make_dataclass(node.name, fields, frozen=True)
    made.__doc__ = ast.get_docstring(node)
    return made


def _evaluated(expression: ast.expr) -> Any:
    return eval(compile(ast.Expression(expression), "<declared>", "eval"), dict(_KNOWN))
