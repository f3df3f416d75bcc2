"""What `make install` needs of the machine, in one line."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    "python, message",
    [
        ("python-of-none", "needs python-of-none, and there is none on PATH: install it (uv python install 3.10,"),
        ("./python-of-now", "needs Python 3.10, and ./python-of-now is another one: leave PYTHON out"),
    ],
)
def test_a_missing_or_another_python_is_one_line_with_the_fix(python, message, tmp_path):
    for name in ("Makefile", ".python-version", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python-of-now").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python-of-now").chmod(0o755)
    done = subprocess.run(["make", "install", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout.startswith(f"make install {message}") and done.stdout.count("\n") == 1
    assert not (tmp_path / ".venv").exists()
