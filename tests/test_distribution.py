"""The wheel: what it contains, and that it works in an environment of its own."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOT_IN_THE_WHEEL = ("tests/", "docs/", "examples/", "benchmarks/zoo/", "benchmarks/results/suites/", ".")


def run(command, folder, timeout=600):
    """Runs a command without this checkout on Python's path; returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked_files():
    return set(run(["git", "ls-files"], ROOT).splitlines())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a clean checkout: of the tracked files, and of nothing else."""
    checkout, wheels = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheels")
    for name in tracked_files():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, "."], checkout)
    (made,) = wheels.glob("*.whl")
    return made


@pytest.mark.slow
def test_a_wheel_contains_every_file_of_the_packages(wheel):
    with zipfile.ZipFile(wheel) as file:
        contents = {name.removeprefix("callboard/") for name in file.namelist() if ".dist-info/" not in name}
    expected = {name for name in tracked_files() if "/" in name and not name.startswith(NOT_IN_THE_WHEEL)}
    in_root = {path.name for path in ROOT.glob("*.py")} - {"setup.py"} | {"py.typed"}
    assert contents == expected | in_root


@pytest.mark.slow
def test_a_wheel_works_in_an_empty_environment(wheel, tmp_path):
    environment, folder = tmp_path / "environment", tmp_path / "folder"
    folder.mkdir()
    run([sys.executable, "-m", "venv", environment], tmp_path)
    run([pathlib.Path(sys.executable).parent / "uv", "pip", "install", "--python", environment, wheel], tmp_path)
    callboard = environment / "bin" / "callboard"

    assert "ok  tensorflow" in run([callboard, "doctor"], folder)
    assert "impala" in run([callboard, "list", "agents"], folder)
    assert "impala-cartpole" in run([callboard, "list", "recipes"], folder)
    assert "CartPole-v1" in run([callboard, "list", "environments"], folder)
    options = ["--recipe", "impala-cartpole", "--max-steps", "2000", "--run-dir", "run"]
    assert "Run directory: run" in run([callboard, "train", *options], folder)
    assert (folder / "run" / "experiment.yaml").exists()
    module = "import callboard; print(callboard.__version__, callboard.__file__)"
    version, file = run([environment / "bin" / "python", "-c", module], folder).split()
    assert wheel.name.startswith(f"callboard-{version}-")
    assert file.startswith(str(environment))
