"""The program of workers: one text for other versions of Python."""

import ast
import sys

import pytest

from callboard import environments
from callboard.environments.workers import worker_environments
from callboard.environments.workers.worker_process import _program
from callboard.errors import CallboardError
from callboard.settings.own_modules import search_working_directory

SAME = {"env_python": "same"}


def test_the_program_needs_numpy_alone_and_is_of_python_3_9():
    tree = ast.parse(_program(), feature_version=(3, 9))
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


@pytest.mark.parametrize(
    "name, options",
    [
        ("subprocess:getoutput", {"cmd": "touch executed"}),
        ("CartPole-v1", {"env_wrappers": [{"name": "subprocess:Popen", "args": "touch executed"}]}),
        ("site.__main__:x", {}),
    ],
)
def test_names_of_the_standard_library_are_refused_before_a_worker_starts(name, options, monkeypatch):
    monkeypatch.setattr(worker_environments, "WorkerProcess", None)
    for own in ({}, SAME):
        with pytest.raises(CallboardError, match="^(environment|wrapper) '.*' is refused: '.*' is "):
            environments.make(name, 1, [0], {**options, **own})


@pytest.mark.parametrize(
    "name, options",
    [
        ("gymnasium.envs.registration:load_env_creator", {"name": "os:system"}),
        ("worker_cases:os.system", {"command": "touch executed"}),
    ],
)
def test_a_worker_calls_only_what_this_process_would_call(name, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for own in ({}, SAME):
        with pytest.raises(CallboardError, match=f"^environment '{name}' is refused: it belongs to "):
            environments.make(name, 1, [0], {**options, **own})
    assert not (tmp_path / "executed").exists()


def test_own_directories_are_searched_only_for_own_modules(tmp_path, monkeypatch):
    """A library that tries to import what is not installed does not get a file of the working directory."""
    (tmp_path / "pickle5.py").write_text("raise SystemError('executed')")
    (tmp_path / "own_wrapper.py").write_text("import gymnasium, own_part\nclass Own(gymnasium.Wrapper): pass")
    (tmp_path / "own_part.py").write_text("")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    search_working_directory(str(tmp_path))
    environments.make("worker_cases:imports_pickle5", 1, [0], SAME).close()
    environments.check("CartPole-v1", {**SAME, "env_wrappers": "own_wrapper:Own"})
