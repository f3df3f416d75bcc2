"""Running an experiment: the one way in for the command and for those who use Callboard as a library."""

import contextlib
import datetime
import importlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ..agents.acting import trace_layout
from ..agents.agent import Agent
from ..agents.registry import agent_class, agent_name
from ..data import CallboardError, Layout
from ..replay import check_settings, latest_checkpoint
from .checkpoints import Checkpoints, load_policy
from .devices import device_names, hide_gpus, prepare_devices
from .display import LineMonitor
from .experiment import Experiment, Run
from .launchers.outcome import Monitor, Outcome
from .program import default_run_directory, make_program
from .run_directory import RunDirectory
from .settings import write_experiment

LAUNCHERS: Sequence[str] = ("processes", "threads", "inline")


def run(
    experiment: Experiment, launcher: str = "processes", monitor: Monitor | None = None, resume: bool = False
) -> Outcome:
    """Runs an experiment to its end.

    Args:
      experiment: what to run.
      launcher: one of `LAUNCHERS`.
      monitor: is told what happens; None prints a line now and then.
      resume: whether to go on with the run in `experiment.run_dir`, instead of beginning one there.

    Returns:
      How the run has ended.

    Raises:
      CallboardError: nothing was started, because something is wrong that the message names.
    """
    if launcher not in LAUNCHERS:
        raise CallboardError(f"unknown launcher {launcher!r}: there are {', '.join(LAUNCHERS)}")
    _check_agent_is_found_again(experiment.agent)
    if launcher == "inline" and experiment.replay_shards > 1:
        raise CallboardError(
            f"the inline launcher has one replay server in its process: set replay_shards to 1, not "
            f"{experiment.replay_shards}, or take --launcher threads or processes"
        )
    if launcher != "processes" and experiment.learners > 1:
        raise CallboardError(
            f"the {launcher} launcher has one process, and each of {experiment.learners} learners needs its own: "
            "set learners to 1, or take --launcher processes"
        )
    layout = experiment.check()
    if launcher != "processes":
        prepare_devices(device_names(experiment.learner_devices))
    directory = find_run_directory(experiment, resume)
    if resume:
        if launcher == "processes":
            hide_gpus()  # They are the learner's.
        _check_run_fits(experiment, layout, directory)
    directory.create()
    write_experiment(experiment, directory.experiment)
    program = make_program(Run(experiment, layout, directory))
    module: Any = importlib.import_module(f".launchers.{launcher}", __package__)
    with _temporary_files_in(directory.temporary):
        return module.run(program, directory, monitor or LineMonitor(experiment.max_steps))


def find_run_directory(experiment: Experiment, resume: bool) -> RunDirectory:
    """The directory to run in; nothing is written yet.

    Raises:
      CallboardError: there is a run in it already, or none to resume.
    """
    path = experiment.run_dir
    if path is None:
        if resume:
            raise CallboardError("resume needs the run's directory: name it with --run-dir")
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = agent_name(experiment.agent).rpartition(":")[2].lower()
        path = default_run_directory(experiment, name, now)
    directory = RunDirectory(pathlib.Path(path).absolute())
    if resume and not directory.experiment.exists():
        raise CallboardError(f"there is no run to resume in {path}: it has no experiment.yaml")
    if not resume and directory.experiment.exists():
        raise CallboardError(f"there is a run in {path} already: go on with it by --resume, or name another directory")
    return directory


@contextlib.contextmanager
def _temporary_files_in(directory: pathlib.Path) -> Iterator[None]:
    """Keeps temporary files, such as AutoGraph's, in a directory that is removed afterwards."""
    directory.mkdir(exist_ok=True)
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before
        shutil.rmtree(directory, ignore_errors=True)


def _check_agent_is_found_again(agent: Agent) -> None:
    """Refuses an agent that `experiment.yaml` could not name: its run could be neither resumed nor evaluated."""
    name = agent_name(agent)
    if not name.startswith("__main__:"):
        try:
            if agent_class(name) is type(agent):
                return
        except CallboardError:
            pass
        raise CallboardError(f"the agent {name!r} cannot be imported by that name: define its class at a module's top")


def _check_run_fits(experiment: Experiment, layout: Layout, directory: RunDirectory) -> None:
    """Refuses to go on with networks, or with a replay, of other shapes than those in the last checkpoint."""
    agent = experiment.agent
    networks = agent.make_networks(layout)
    latest = Checkpoints(directory).latest()
    if latest is not None:
        load_policy(latest / "policy.npz", agent.make_policy(networks, "train").variables)
    if not experiment.checkpoint_replay:
        return
    kept = [shard for shard in directory.replay_shards() if latest_checkpoint(directory.replay(shard))]
    shards = len(directory.replay_shards())
    if kept and shards != layout.shards:
        raise CallboardError(
            f"the replay of the run was kept in {shards} shard(s): go on with replay_shards {shards}, or begin "
            f"with an empty replay by removing {directory.path / 'replay'}"
        )
    tables = agent.make_tables(trace_layout(agent, layout, networks))
    for shard in kept:
        check_settings(directory.replay(shard), tables)
