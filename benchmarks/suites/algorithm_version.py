"""What an agent's scores depend on in the code: its defaults, its losses and how it learns from them."""

import ast
import functools
import hashlib
import pathlib

from ...agents.agent_names import AGENTS

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_AGENTS = _ROOT / "agents"
_PARTS = ("", "settings", "losses", "learning", "offline", "variables")
"""Folders of `agents/` in which a change changes scores; how actors act does not belong to it."""
_LEFT_OUT = ("agent_names", "registry", "metric_names", "weights", "agent")


def algorithm_version(agent: str) -> str:
    """Returns a short text that changes with the code of an agent's algorithm, and with its defaults.

    Docstrings, comments, imports and the places of modules do not count.

    Args:
      agent: name of a built-in agent.
    """
    module = AGENTS[agent].partition(":")[0].partition(".agents.")[2]
    first = _AGENTS.joinpath(*module.split(".")).with_suffix(".py")
    found: set[pathlib.Path] = set()
    todo = [first]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imported(path)
    texts = sorted(_text(path) for path in found)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


@functools.cache
def _imported(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the modules of the algorithm that a module imports."""
    folder = path.parent
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = folder.joinpath(*[".."] * (node.level - 1), *(node.module or "").split(".")).resolve()
        names = [base, *(base / alias.name for alias in node.names)]
        found += [name.with_suffix(".py") for name in names if _belongs(name.with_suffix(".py"))]
    return found


def _belongs(path: pathlib.Path) -> bool:
    if not path.is_file() or not path.is_relative_to(_AGENTS) or path.stem in _LEFT_OUT:
        return False
    return "/".join(path.relative_to(_AGENTS).parts[:-1]) in _PARTS


@functools.cache
def _text(path: pathlib.Path) -> str:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not _is_text(part) and not isinstance(part, ast.Import | ast.ImportFrom)]
            node.body = kept  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
