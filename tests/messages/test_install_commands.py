"""The command that installs a package: it is the one of this environment, and pip finds extras of Callboard by it."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from callboard.messages import install_commands
from callboard.messages.install_commands import install_command


@pytest.fixture
def interpreter(monkeypatch, tmp_path):
    """Pretends that this process runs in an environment in the working directory."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "pip"):
        (folder / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def test_pip_alone_is_named_where_it_is_that_of_the_environment(interpreter, monkeypatch):
    monkeypatch.setenv("PATH", str(interpreter), prepend=os.pathsep)
    assert install_command("callboard[plot]") == "pip install 'callboard[plot]'"


def test_elsewhere_the_interpreter_is_named_from_the_working_directory(interpreter, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    assert install_command("a<1", "b") == ".venv/bin/python -m pip install 'a<1' 'b'"
    (tmp_path / "else where").mkdir()
    monkeypatch.chdir(tmp_path / "else where")
    assert install_command("a") == f"{interpreter}/python -m pip install 'a'"


def test_an_environment_without_pip_is_filled_by_uv(interpreter, monkeypatch):
    monkeypatch.setattr(install_commands.importlib.util, "find_spec", lambda name: None)
    assert install_command("callboard[plot]") == "uv pip install --python .venv/bin/python 'callboard[plot]'"


@pytest.mark.slow
def test_it_installs_an_extra_without_an_index_that_has_callboard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*shlex.split(install_command("callboard[plot]")), "--no-index", "--dry-run"]
    words[0] = str(pathlib.Path(sys.executable).parent / words[0]) if words[0] == "pip" else words[0]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and "matplotlib" in done.stdout, done.stdout + done.stderr
