"""Settings of the built-in agents, read from their source without importing TensorFlow."""

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

# Names that annotations and defaults of fields may use.
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
    """Returns a dataclass with the fields, defaults and docstring of the agent at `package.module:Class`.

    Returns None where the source alone is not enough: for a class that inherits fields, or whose annotations or
    defaults use other imports of its module.
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
            except Exception:  # An unknown name, or an expression that cannot be evaluated without it.
                return None
            fields.append((statement.target.id, hint, *default))
    made = dataclasses.make_dataclass(node.name, fields, frozen=True)
    made.__doc__ = ast.get_docstring(node)
    return made


def _evaluated(expression: ast.expr) -> Any:
    return eval(compile(ast.Expression(expression), "<declared>", "eval"), dict(_KNOWN))
