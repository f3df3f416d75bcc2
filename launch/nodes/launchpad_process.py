"""The process that Launchpad starts for a node, begun as all other interpreters are."""

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from absl import app
from launchpad.launch.local_multi_processing.commands import Command

from ...runtime.interpreter import python_command
from ...settings.own_modules import search_working_directory

_LAUNCHPAD_ARGUMENTS = 2
"""The interpreter and Launchpad's script, which precede the arguments in its commands."""


def begin_on_this_path(node: Any) -> None:
    """Lets Launchpad start the process of a node with the module search path of this one, and nothing else.

    Launchpad's own script adds the working directory to its path, where libraries find modules that need not be
    installed.
    """
    node.to_executables = _Executables(node.to_executables)


class _Executables:
    """Launchpad's function that makes executables of nodes, with other commands for processes."""

    def __init__(self, function: Callable[..., Sequence[Any]]):
        self._function = function

    def __call__(self, nodes: Sequence[Any], label: str, launch_context: Any) -> list[Any]:
        executables = self._function(nodes, label, launch_context)
        for command in executables:
            if isinstance(command, Command):
                code = f"from {__name__} import main; main()"
                command.command_as_list = python_command(code, *command.command_as_list[_LAUNCHPAD_ARGUMENTS:])
        return list(executables)


def main() -> None:
    """Runs Launchpad's script; the arguments are its own."""
    from launchpad.nodes.python import process_entry

    search_working_directory()
    # The script adds the working directory to the path of this object.
    process_entry.sys = types.SimpleNamespace(path=[], argv=sys.argv, stdout=sys.stdout)
    process_entry._populate_flags()
    app.run(process_entry.main)
