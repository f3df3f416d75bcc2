"""Modules as syntax trees, parsed once for all tests that read the library's text."""

import ast
import functools
import pathlib


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path: pathlib.Path) -> list[ast.AST]:
    """All nodes of a module."""
    return list(ast.walk(parsed(path)))
