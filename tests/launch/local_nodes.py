"""The nodes of a small run in one thread, as the inline launcher makes them, for tests of single nodes."""

import contextlib
import threading

from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.launchers.inline import make_local_nodes
from callboard.launch.program import make_program
from callboard.launch.run_directory.layout import RunDirectory

SMALL = ("--actors", 1, "--envs-per-actor", 2, "--agent.network.hidden-sizes", "[4]", "--stop-return", "null")


@contextlib.contextmanager
def small_run(recipe, directory, *options, only=(), messages=None):
    """Sets up the nodes of a recipe with a small network; yields them by name.

    Args:
      recipe: name of the recipe.
      directory: the run directory.
      options: further options of the command line.
      only: names of the nodes that are set up; all if empty.
      messages: list of the messages `(name, kind, content)` that nodes send.
    """
    experiment = parse_experiment(None, read_recipe(recipe), [str(option) for option in (*SMALL, *options)])
    run = Run(experiment, check_experiment(experiment).whole, RunDirectory(directory))
    run.directory.create()
    sent = [] if messages is None else messages
    nodes = make_local_nodes(make_program(run), threading.Event(), lambda *message: sent.append(message))
    try:
        for name, node in nodes.items():
            if not only or name in only:
                node.setup()
        yield nodes
    finally:
        release(nodes)


def release(nodes):
    """Ends the servers and threads of nodes in this process."""
    for node in nodes.values():
        node.release()
