"""The source files of the user's own modules: those that settings name, and what these import from the project.

They are found by reading, not by importing: a process that only compares or sends them need not run them.
"""

import ast
import dataclasses
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .own_modules import is_own_file, searched_directories

_NAMED = re.compile(r"(?<![\w./])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?=[A-Za-z_])")
"""The module in `my_module:MyAgent`, also in a list of such names, or in YAML or JSON."""
_IMPORTING = ("import_module", "__import__")


def own_files(*settings: Any, with_program: bool = True) -> dict[str, bytes]:
    """Returns the content of the source files of all own modules that settings need.

    Args:
      settings: any nests of settings: names such as `my_module:MyAgent`, and classes, functions and objects.
      with_program: whether the file of the program itself counts, where settings name what it defines.

    Returns:
      The contents by relative paths, such as `my_project/agents.py`, as below the directory that Python searches.
    """
    search = _Search()
    for module in _modules(settings):
        if with_program or module != "__main__":
            search.add(module)
    return dict(sorted(search.files.items()))


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Returns a digest of the content of each file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def different_file(expected: Mapping[str, str]) -> str:
    """Returns an own file that is missing here or differs from what is expected; empty if there is none.

    Args:
      expected: digests by relative paths, as another machine has them.
    """
    modules = (name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in expected)
    here = digests_of(own_files([f"{module}:any" for module in modules]))
    return next((name for name, digest in expected.items() if here.get(name) != digest), "")


def _modules(value: Any) -> Iterator[str]:
    """Yields the modules that a nest of settings names, once or more often."""
    if isinstance(value, str):
        yield from _NAMED.findall(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _modules(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _modules(part)
    elif isinstance(getattr(value, "__module__", None), str):
        yield value.__module__
        yield from _modules(getattr(value, "func", None))  # Of a partial.
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _modules([getattr(value, field.name, None) for field in dataclasses.fields(value)])


class _Search:
    """Finds modules and what they import.

    Attributes:
      files: the contents of their files.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._found: dict[str, Sequence[str] | None] = {}
        """By the name of each module: where its submodules are searched, or None if it is not an own one."""

    def add(self, module: str) -> bool:
        """Adds a module with the packages that contain it; returns whether it is an own one."""
        if module in self._found:
            return self._found[module] is not None
        self._found[module] = None
        package = module.rpartition(".")[0]
        if package and not self.add(package):
            return False
        file, self._found[module] = self._locate(module, package)
        if file is not None and file.endswith(".py"):
            self._read(module, file)
        return self._found[module] is not None

    def _locate(self, module: str, package: str) -> tuple[str | None, Sequence[str] | None]:
        """Returns the file of a module and where its submodules are searched; None for each that there is not."""
        if module == "__main__":
            file = getattr(sys.modules[module], "__file__", None)
            return (file, ()) if is_own_file(module, file) else (None, None)
        try:
            if package:
                # By the last part of its name alone: its package has not been imported.
                spec = importlib.machinery.PathFinder.find_spec(module.rpartition(".")[2], self._found[package])
            else:
                spec = importlib.util.find_spec(module)
                spec = spec or importlib.machinery.PathFinder.find_spec(module, searched_directories())
        except (ImportError, ValueError):  # A module without a spec, which was put into `sys.modules`.
            return None, None
        if spec is None:
            return None, None
        inside = list(spec.submodule_search_locations or ())
        # A package without a file of its own belongs to whom its directory does.
        file = spec.origin if spec.has_location else next((os.path.join(each, "__init__.py") for each in inside), None)
        if file is None or not is_own_file(module, file):
            return None, None
        return (file if spec.has_location else None), inside

    def _read(self, module: str, file: str) -> None:
        try:
            content = pathlib.Path(file).read_bytes()
            tree = ast.parse(content)
        except (OSError, SyntaxError, ValueError):
            return  # Importing it fails with a better error.
        is_package = os.path.basename(file) == "__init__.py"
        path = os.path.basename(file) if module == "__main__" else module.replace(".", "/")
        self.files[f"{path}/__init__.py" if is_package else f"{path.removesuffix('.py')}.py"] = content
        for name in _imported(tree, module if is_package else module.rpartition(".")[0]):
            self.add(name)


def _imported(tree: ast.AST, package: str) -> Iterable[str]:
    """Yields the names of what a module in a package imports: modules, and members, which may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*outer, *filter(None, [node.module])])
            yield from filter(None, [base, *(f"{base}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = node.args[0].value
            if called in _IMPORTING and isinstance(name, str) and not name.startswith("."):
                yield name
