"""Every subcommand of every command, in a working directory full of files that libraries look for: none is used."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

from callboard.cli import command

HOSTILE = {
    *sys.stdlib_module_names,
    *(name.partition("/")[0] for name in importlib.metadata.packages_distributions()),
    *"sitecustomize usercustomize conftest pickle5 org backports_abc msvcrt dill lz4 simplejson tensorflow_io".split(),
    *"wandb minatar colorama zstandard jax_plugins brotli google cupy torch".split(),
} - {"__future__"}
COMMANDS = {
    "callboard": ("callboard.__main__", "callboard.cli.command", "command._SUBCOMMANDS"),
    "callboard-bench": (
        "callboard.benchmarks.command",
        "callboard.benchmarks.command",
        "command._parser()._subparsers._group_actions[0].choices",
    ),
}
"""The module that starts each command, the one with its `main`, and what names the subcommands there."""
CALLS = """
import contextlib, importlib, io, os, sys
import {start}
command = importlib.import_module({main!r})
here, called = os.getcwd(), []
for name in {subcommands}:
    # The help is made of the subcommand's own module; wrong arguments also reach what it imports later.
    for arguments in (["--help"], ["nothing-there"], ["nothing-there", "--nothing"]):
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            with contextlib.redirect_stderr(io.StringIO()):
                command.main([name, *arguments])
    called.append(name)
    assert not {{"", ".", here}} & set(sys.path), (name, sys.path)
print(*called)
"""


def test_every_command_is_here():
    scripts = importlib.metadata.distribution("callboard").entry_points.select(group="console_scripts")
    assert {each.name: each.value.partition(":")[0] for each in scripts} == {
        name: modules[0] for name, modules in COMMANDS.items()
    }


def test_every_module_with_a_subcommand_is_one_of_the_table():
    folder = pathlib.Path(command.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "\ndef main(" in path.read_text()}
    assert modules - {"command"} == set(command._SUBCOMMANDS)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_subcommand_takes_a_file_of_the_working_directory(name, tmp_path):
    here, start = tmp_path / "here", tmp_path / "bin" / name
    here.mkdir()
    for module in HOSTILE:
        (here / f"{module}.py").write_text(f"open('executed', 'a').write('{module} ')\n")
    for file in ("uv.toml", ".env", "pyproject.toml", "setup.cfg", ".netrc", "ray.yaml", "libglfw.so"):
        (here / file).write_text("neither TOML nor a library")
    os.mkfifo(here / "matplotlibrc")  # Who opens it waits for ever.
    before = sorted(path.name for path in here.iterdir())
    start.parent.mkdir()
    starts, main, subcommands = COMMANDS[name]
    start.write_text(CALLS.format(start=starts, main=main, subcommands=subcommands))
    done = subprocess.run([sys.executable, start], cwd=here, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 5
    assert not (here / "executed").exists(), (here / "executed").read_text()
    assert sorted(path.name for path in here.iterdir()) == before
