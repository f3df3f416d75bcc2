"""The program of workers: one text for other versions of Python."""

import ast
import sys

from callboard.environments.workers.worker_process import _program


def test_the_program_needs_numpy_alone_and_is_of_python_3_9():
    tree = ast.parse(_program(False), feature_version=(3, 9))
    imported = set()
    for node in tree.body + [inner for inner in ast.walk(tree) if isinstance(inner, ast.Try)]:
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            imported.add(str(node.module).partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"numpy"}
    assert "callboard" not in {name.partition(".")[0] for name in imported}
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
