"""Other interpreters are started in one way, in which files of the working directory take no library's place."""

import ast
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys

import pytest
from code_size import PACKAGES
from parsed_modules import parsed

from callboard.environments.workers.interpreters import find_interpreter
from callboard.errors import CallboardError
from callboard.runtime.interpreter import callboard_command, python_command, spawning_on_this_path

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOWN = {"runtime/interpreter.py", "messages/install_commands.py", "environments/workers/interpreters.py"}
"""Modules that may name `sys.executable`: the one that starts it, one that shows it, and one for other interpreters."""
STARTERS = {"system", "popen", "fork_exec", "spawnv_passfds", "create_subprocess_exec", "create_subprocess_shell"}
NAMES = re.compile(r"sys\.executable|from sys import|subprocess|os\.exec|spawn|forkserver|" + "|".join(STARTERS))
"""One of these is in every module that starts an interpreter; to look at the calls of all takes seconds."""
PLAIN = {
    "launch/processes/temporary_files.py": "/bin/sh",
    "environments/workers/worker_process.py": "worker_command, which searches no working directory",
    "launch/launchers/hosts/ssh_tunnels.py": "ssh, and python_command",
    "benchmarks/results.py": "git",
    "benchmarks/peers/program.py": "interpreters of other libraries, in a directory of its own",
    "benchmarks/suites/runner.py": "interpreters of other libraries, with a script of ours",
}
"""Modules that start programs without `python_command`, and which."""
SPAWNING = {"environments/adapters/single_environments.py", "benchmarks/policy_server.py"}
"""Modules in which `multiprocessing` starts interpreters: within `spawning_on_this_path`."""


def modules():
    folders = (*PACKAGES, "benchmarks", "examples")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted([*ROOT.glob("*.py"), *found])


def calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_every_interpreter_is_started_by_one_module():
    wrong = []
    for path in modules():
        name, text = str(path.relative_to(ROOT)), path.read_text()
        if name in SHOWN or not NAMES.search(text):
            continue
        if "sys.executable" in text or "from sys import" in text:
            wrong.append(f"{name} names sys.executable")
        starts = [
            ast.unparse(call.func)
            for call in calls(parsed(path))
            if ast.unparse(call.func).startswith(("subprocess.", "os.exec", "os.spawn", "os.posix_spawn"))
            or ast.unparse(call.func).rpartition(".")[2] in STARTERS
        ]
        if starts and name not in PLAIN and not ("python_command(" in text or "callboard_command(" in text):
            wrong.append(f"{name} calls {starts}")
        spawns = re.search(r"""(get_context|set_start_method|context)\W{1,2}(spawn|forkserver)\b""", text)
        if spawns and (name not in SPAWNING or "with spawning_on_this_path()" not in text):
            wrong.append(f"{name} spawns")
    assert not wrong
    assert all((ROOT / name).exists() for name in [*PLAIN, *SPAWNING, *SHOWN])


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A working directory with modules that bear the names of libraries."""
    own = {"json", "ctypes", "tempfile", "multiprocessing", "signal", "struct", "pickle", "numpy", "callboard", "yaml"}
    for name in own:
        (tmp_path / f"{name}.py").write_text(f"open('executed', 'a').write('{name} ')\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def test_libraries_are_not_taken_from_the_working_directory(hostile):
    code = "import ctypes, json, numpy, tempfile; print(sys.argv[1], ctypes.__name__)"
    done = subprocess.run(python_command(code, "given"), capture_output=True, text=True)
    assert done.stdout == "given ctypes\n", done.stderr
    done = subprocess.run(callboard_command("--version", before="import json"), capture_output=True, text=True)
    assert done.stdout.startswith("callboard "), done.stderr


def test_processes_that_are_spawned_take_none_either(hostile):
    code = (
        "import multiprocessing, os; from callboard.runtime.interpreter import spawning_on_this_path\n"
        "context = multiprocessing.get_context('spawn')\n"
        "with spawning_on_this_path():\n"
        "    process = context.Process(target=os.getpid); process.start(); process.join(); print(process.exitcode)\n"
    )
    done = subprocess.run(python_command(code), capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr


def test_spawning_is_as_before_afterwards():
    before = multiprocessing.util.spawnv_passfds
    with spawning_on_this_path():
        assert multiprocessing.util.spawnv_passfds is not before
    assert multiprocessing.util.spawnv_passfds is before


def test_the_command_as_a_module_takes_none_that_it_imports_itself(hostile):
    # What Python imports before it reaches the command is searched in the working directory, as `python -m` does.
    (hostile / "callboard.py").unlink()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "callboard", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("callboard "), done.stderr


@pytest.mark.skipif(not pathlib.Path("/proc/self/autogroup").exists(), reason="this kernel groups no sessions")
def test_a_new_session_keeps_the_niceness_of_who_has_started_it():
    code = "import os, subprocess; from callboard.runtime.interpreter import python_command; "
    code += "niceness = os.nice(7) or os.nice(1); print(niceness, flush=True); "
    code += "show = 'print(open(\"/proc/self/autogroup\").read())'; "
    code += "subprocess.run(python_command(show, in_new_session=True), start_new_session=True)"
    done = subprocess.run(python_command(code), capture_output=True, text=True)
    niceness, group = done.stdout.split("\n")[:2]
    assert group.endswith(f" nice {niceness}"), done.stderr


def test_libraries_that_read_the_working_directory_do_so_elsewhere(hostile):
    # Glfw loads its library from there, and asks Python for its version, which takes `ctypes` from there.
    (hostile / "libglfw.so").write_text("no library")
    os.mkfifo(hostile / "matplotlibrc")  # Who opens it waits for ever.
    code = "import glfw, matplotlib, os; sys.exit(os.getcwd() != sys.argv[1])"
    for module in ("glfw", "matplotlib"):
        pytest.importorskip(module)
    done = subprocess.run(python_command(code, str(hostile)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_uv_reads_no_settings_of_the_working_directory(hostile, tmp_path_factory, monkeypatch):
    (hostile / "uv.toml").write_text("no TOML")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with pytest.raises(CallboardError) as refused:
        find_interpreter("uv:./none")
    assert "TOML" not in str(refused.value) and "none" in str(refused.value)


def test_a_program_is_not_run_again_by_the_processes_of_its_environments(tmp_path):
    code = (
        "import multiprocessing, os\n"
        "print('begins', flush=True)\n"
        "from callboard.runtime.interpreter import program_not_run_again, spawning_on_this_path\n"
        "with spawning_on_this_path(), program_not_run_again():\n"
        "    process = multiprocessing.get_context('spawn').Process(target=os.getpid)\n"
        "    process.start()\n"
        "    process.join()\n"
        "print(process.exitcode, os.path.basename(__file__), __spec__)\n"
    )
    (tmp_path / "program.py").write_text(code)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True)
    assert done.stdout == "begins\n0 program.py None\n", done.stderr
