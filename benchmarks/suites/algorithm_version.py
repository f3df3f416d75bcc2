"""What an agent's scores depend on in the code: its defaults, its losses and how it learns from them."""

import ast
import functools
import hashlib
import pathlib
from typing import NamedTuple

from ...agents.agent_names import AGENTS

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_AGENTS = _ROOT / "agents"
_PARTS = ("", "settings", "losses", "learning", "offline", "variables")
"""Folders of `agents/` in which a change changes scores; how actors act, and how functions are called, does not."""
_LEFT_OUT = ("agent_names", "registry", "metric_names", "weights", "agent", "fast_function")


class _Name(NamedTuple):
    """A name that a module of the algorithm defines."""

    path: pathlib.Path
    name: str


def algorithm_version(agent: str) -> str:
    """Returns a short text that changes with the code of an agent's algorithm, and with its defaults.

    That is the agent's class, and all functions, classes and constants that follow from it by name.  Docstrings,
    comments, imports, the places of definitions, and checks that only raise do not count.

    Args:
      agent: name of a built-in agent.
    """
    module, _, name = AGENTS[agent].partition(":")
    first = _AGENTS.joinpath(*module.partition(".agents.")[2].split(".")).with_suffix(".py")
    found: set[_Name] = set()
    todo = [_Name(first, name)]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += [other for used in _used(one) if (other := _resolved(one.path, used)) is not None]
    texts = sorted({ast.dump(node) for path, name in found for node in _definitions(path).get(name, ())})
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _used(one: _Name) -> set[str]:
    """Returns the names in a definition."""
    nodes = [node for definition in _definitions(one.path).get(one.name, ()) for node in ast.walk(definition)]
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        f"{node.value.id}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def _resolved(path: pathlib.Path, used: str) -> _Name | None:
    """Returns where a name that a module uses is defined, if that belongs to the algorithm."""
    name, _, attribute = used.partition(".")
    if not attribute and name in _definitions(path):
        return _Name(path, name)
    source = _imported(path).get(name)
    if source is None:
        return None
    if attribute:
        return _Name(source.path, attribute) if not source.name else None
    return source if source.name in _definitions(source.path) else _resolved(source.path, source.name)


@functools.cache
def _imported(path: pathlib.Path) -> dict[str, _Name]:
    """Returns the names that a module imports from modules of the algorithm; a whole module has no name there."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = path.parent.joinpath(*[".."] * (node.level - 1), *(node.module or "").split(".")).resolve()
        for alias in node.names:
            inside = [_Name(path, alias.name) for path in (base / "__init__.py", base.with_suffix(".py"))]
            for source in (*inside, _Name((base / alias.name).with_suffix(".py"), "")):
                if _belongs(source.path):
                    found[alias.asname or alias.name] = source
    return found


def _belongs(path: pathlib.Path) -> bool:
    if not path.is_file() or not path.is_relative_to(_AGENTS) or path.stem in _LEFT_OUT:
        return False
    return "/".join(path.relative_to(_AGENTS).parts[:-1]) in _PARTS


@functools.cache
def _definitions(path: pathlib.Path) -> dict[str, list[ast.AST]]:
    """Returns the statements at the top of a module by the names that they define, without what has no effect."""
    found: dict[str, list[ast.AST]] = {}
    for statement in ast.parse(path.read_text()).body:
        targets = getattr(statement, "targets", [getattr(statement, "target", statement)])
        for name in [getattr(one, "id", getattr(one, "name", None)) for one in targets]:
            if name is not None:
                found.setdefault(name, []).append(_effective(statement))
    return found


def _effective(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_without_effect(part)]  # type: ignore[attr-defined]
    return tree


def _is_without_effect(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return not node.orelse and all(isinstance(part, ast.Raise) for part in node.body)
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)
