"""Changes single lines of the library at random, and reports which changes the fast tests find.

    python tests/mutants.py [--number 30] [--seed 1] [--whole-suite]

A change is one of a comparison, of a number or truth value, or of what a function returns. Each is tried in a copy of
the clone, first with the tests of the module's own name, then with those that import the module, and with
`--whole-suite` with all fast tests in the end. One that is not found is printed with its line, to be read: some of them
change nothing that matters.
"""

import argparse
import ast
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from code_size import PACKAGES

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SECONDS = 900
"""Time limit of the tests of one change; a change that hangs them is found."""
MOST_IMPORTERS = 12
"""Modules of tests that import a changed module and are run for it, the smallest first."""


class Change(NamedTuple):
    """A change of one expression."""

    path: pathlib.Path
    """The module, relative to the clone."""
    line: int
    before: str
    after: str
    column: int
    """Bytes of the line before the expression."""

    def text(self, source: str) -> str:
        """The changed text of the module."""
        lines = source.splitlines(keepends=True)
        row = lines[self.line - 1].encode()
        end = self.column + len(self.before.encode())
        lines[self.line - 1] = (row[: self.column] + self.after.encode() + row[end:]).decode()
        return "".join(lines)


def changes(path: pathlib.Path) -> Iterator[Change]:
    """All changes of a module that the script knows."""
    source = path.read_text()
    tree, lines = ast.parse(source), source.splitlines()
    in_annotations = {
        id(part)
        for node in ast.walk(tree)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(annotation, ast.AST)
        for part in ast.walk(annotation)
    }
    for node in ast.walk(tree):
        if id(node) in in_annotations or not isinstance(node, ast.expr | ast.stmt):
            continue
        replaced = _replaced(node)
        if replaced is not None and node.lineno == node.end_lineno:
            before = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            yield Change(path.relative_to(ROOT), node.lineno, before, replaced, node.col_offset)


def _replaced(node: ast.AST) -> str | None:
    """The source that takes the place of an expression or statement; None for those that are left."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return ast.unparse(ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return repr(node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        return "return None"
    return None


def tests_of(path: pathlib.Path) -> list[list[str]]:
    """The modules of tests of a module: those of its own name, and those that import it."""
    name = "callboard." + ".".join(path.with_suffix("").parts)
    modules = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda test: test.stat().st_size)
    own = [str(test.relative_to(ROOT)) for test in modules if test.stem == f"test_{path.stem}"]
    package, _, module = name.rpartition(".")
    spellings = (f"from {name} import", f"import {name}", f"from {package} import {module}")
    importers = [str(test.relative_to(ROOT)) for test in modules if any(text in test.read_text() for text in spellings)]
    return [own, [test for test in importers if test not in own][:MOST_IMPORTERS]]


def is_found(copy: pathlib.Path, tests: list[str]) -> bool:
    """Whether one of some modules of tests fails in a copy of the clone; `["tests"]` for all."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True
    # No test of a module is fast: 5.
    return done.returncode not in (0, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole-suite", action="store_true")
    options = parser.parse_args()
    modules = sorted(ROOT.glob("*.py")) + [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
    everything = [change for path in modules if path.name != "setup.py" for change in changes(path)]
    chosen = random.Random(options.seed).sample(everything, options.number)
    found = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory, "callboard")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "callboard", "runs", "__pycache__"))
        (copy / "callboard").symlink_to(".")
        for number, change in enumerate(chosen, 1):
            original = (copy / change.path).read_text()
            (copy / change.path).write_text(change.text(original))
            stages = [tests for tests in tests_of(change.path) if tests]
            if options.whole_suite:
                stages.append(["tests"])
            by = next((stage for stage, tests in enumerate(stages, 1) if is_found(copy, tests)), None)
            (copy / change.path).write_text(original)
            found += by is not None
            verdict = "not found" if by is None else f"found by stage {by}"
            place = f"{change.path}:{change.line}"
            print(f"{number}/{len(chosen)} {verdict}: {place}: {change.before} -> {change.after}", flush=True)
    print(f"{found} of {len(chosen)} changes were found, of {len(everything)} that are possible")


if __name__ == "__main__":
    main()
