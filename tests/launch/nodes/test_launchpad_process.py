"""Processes that Launchpad starts take no library from the working directory, and find the user's modules there."""

import subprocess
import sys

import cloudpickle
import launchpad as lp
from launchpad.launch.local_multi_processing.commands import Command

from callboard.launch.nodes.launchpad_process import begin_on_this_path
from callboard.launch.nodes.user_node import ClosingProgram
from callboard.runtime.interpreter import python_command


class OfLaunchpad:
    def to_executables(self, nodes, label, launch_context):
        return [Command([sys.executable, "process_entry.py", "--data_file", "a b"], {}, label), len]


def test_processes_begin_on_this_path_and_functions_are_as_they_were():
    node = OfLaunchpad()
    begin_on_this_path(node)
    command, function = node.to_executables([node], "actor", None)
    assert function is len
    assert command.command_as_list[:2] == [sys.executable, "-c"]
    assert command.command_as_list[3:] == ["--data_file", "a b"]
    code = "from callboard.launch.nodes.launchpad_process import main; main()"
    assert command.command_as_list == python_command(code, "--data_file", "a b")


def test_it_holds_for_all_nodes_of_a_program():
    program = ClosingProgram("test", ())
    program.add_node(lp.PyNode(print), label="own")
    (node,) = program.groups["own"]
    assert type(node.to_executables).__name__ == "_Executables"


def test_a_process_takes_no_library_from_the_working_directory(tmp_path):
    for name in ("module_that_a_library_tries", "yaml", "zoneinfo"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w')\n")
    (tmp_path / "own_module.py").write_text("import own_sibling\ndef run():\n    return own_sibling.WORD\n")
    (tmp_path / "own_sibling.py").write_text("WORD = 'found'\n")

    def run():
        import importlib
        import zoneinfo  # noqa: F401

        try:
            importlib.import_module("module_that_a_library_tries")
        except ModuleNotFoundError:
            print("not found")

    run.__module__ = "__main__"
    own = b"\x80\x04cown_module\nrun\n."
    (tmp_path / "begin.pkl").write_bytes(own)
    (tmp_path / "job.pkl").write_bytes(cloudpickle.dumps([run]))
    command = python_command(
        "from callboard.launch.nodes.launchpad_process import main; main()",
        "--init_file=begin.pkl",
        "--data_file=job.pkl",
        "--lp_task_id=0",
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "not found\n"
    assert not (tmp_path / "executed").exists()
