"""Files of others: functions that they name are not executed unless they are meant to be."""

import functools
import os
import subprocess
import sys

import pytest

from callboard.errors import CallboardError
from callboard.launch.cli.command import main
from callboard.named_objects import refuse_standard_library

RUN = "agent: {name: impala}\nenv: 'subprocess:getoutput'\nenv_options: {cmd: 'touch executed'}\n"


@pytest.mark.parametrize(
    "recipe",
    [
        RUN,
        "agent: {name: impala}\nenv: 'os:system'\nenv_options: {command: 'touch executed'}\n",
        "agent: {name: 'os:system'}\nenv: CartPole-v1\n",
        "agent: {name: impala, network: {torso: 'os:abort'}}\nenv: CartPole-v1\n",
        "agent: {name: impala}\nenv: 'holds_system:run'\nenv_options: {cmd: 'touch executed'}\n",
        "agent: {name: impala}\nenv: !!python/object/apply:os.system ['touch executed']\n",
    ],
)
def test_functions_of_the_standard_library_are_not_called(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "holds_system.py").write_text("from subprocess import getoutput as run\n")
    (tmp_path / "recipe.yaml").write_text(recipe)
    (tmp_path / "experiment.yaml").write_text(recipe)
    for arguments in (["graph", "--recipe", "recipe.yaml"], ["evaluate", "."], ["export", ".", "policy"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "executed").exists()


def test_a_function_in_a_partial_is_looked_at():
    own = functools.partial(os.path.join, "a")
    with pytest.raises(CallboardError, match="is part of Python's standard library"):
        refuse_standard_library("environment", "mine:own", "mine", own)
    refuse_standard_library("environment", "mine:own", "mine", functools.partial(RunsNothing, size=1))


class RunsNothing:
    pass


@pytest.mark.parametrize("option", [[], ["--private-network"]])
def test_files_in_the_working_directory_do_not_take_the_place_of_libraries(option, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "callboard").write_text("from callboard.launch.cli.command import run_command\nrun_command()\n")
    here = tmp_path / "downloaded"
    here.mkdir()
    for name in ("yaml", "json", "numpy", "rich", "gymnasium", "tensorflow", "callboard", "multiprocessing", "runpy"):
        (here / f"{name}.py").write_text("open('executed', 'w')\n")
    command = [sys.executable, tmp_path / "bin" / "callboard", "train", "--recipe", "impala-cartpole"]
    done = subprocess.run([*command, *option, "--agent.network.core", "lstn"], cwd=here, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("callboard: ") and done.stderr.count("\n") == 1, done.stderr
    assert not (here / "executed").exists()
