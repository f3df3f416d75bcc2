"""Checks before a run starts.  They write nothing, start nothing, and do not import TensorFlow."""

import datetime
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from ..agents.registry import agent_name
from ..errors import CallboardError, unknown
from .experiment import Experiment
from .run_directory.layout import RunDirectory
from .run_directory.remote_storage import is_url
from .run_directory.run_lock import check_not_running
from .settings import read_experiment, settings_by_name

LAUNCHERS: Sequence[str] = ("processes", "threads", "inline", "hosts", "ray")


def check_launcher(launcher: str) -> None:
    """Rejects a launcher that does not exist."""
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)


def check_launcher_can(launcher: str, experiment: Experiment) -> None:
    """Rejects an experiment that the launcher cannot run."""
    if launcher not in ("inline", "threads") and str(experiment.env).startswith("__main__:"):
        raise CallboardError(
            f"environment {experiment.env!r} is of the program that was started, and nodes in other processes cannot "
            "import it: move it to a module of its own, or take the launcher threads or inline"
        )
    if launcher == "inline" and experiment.replay_shards > 1:
        raise CallboardError(
            f"the inline launcher has one replay server in its process: set replay_shards to 1, not "
            f"{experiment.replay_shards}, or take --launcher threads or processes"
        )
    if launcher in ("inline", "threads") and experiment.learners > 1:
        raise CallboardError(
            f"the {launcher} launcher has one process, and each of {experiment.learners} learners needs its own: "
            "set learners to 1, or take --launcher processes"
        )
    if launcher in ("hosts", "ray") and experiment.learner_devices == "all":
        raise CallboardError(
            "only the learner's machine knows how many devices are all: set learner_devices to their number"
        )
    if launcher != "ray" and is_url(experiment.run_dir):
        raise CallboardError(
            f"the {launcher} launcher needs a run directory that is a path, not {experiment.run_dir}: take a path, or "
            "--launcher ray"
        )


def find_run_directory(experiment: Experiment, resume: bool, agent: str = "") -> RunDirectory:
    """Returns the directory to run in; writes nothing yet.

    Args:
      experiment: experiment of the run.
      resume: whether the directory must contain a run; otherwise it must not.
      agent: name of the agent, if the experiment has none yet.

    Raises:
      CallboardError: the directory already contains a run, or none to resume.
    """
    path = experiment.run_dir
    if path is None:
        if resume:
            raise CallboardError("resume needs the run's directory: name it with --run-dir")
        _check_can_be_made(pathlib.Path("runs"))
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = (agent or agent_name(experiment.agent)).rpartition(":")[2].lower()
        path = default_run_directory(experiment, name, now)
    _check_can_be_made(pathlib.Path(path))
    directory = RunDirectory(pathlib.Path(path).absolute())
    check_not_running(directory.lock())
    check_begun(directory, path, resume)
    return directory


def check_begun(directory: RunDirectory, name: str | pathlib.Path, resume: bool) -> None:
    if resume and not directory.experiment.exists():
        raise CallboardError(f"there is no run to resume in {name}: it has no experiment.yaml")
    if not resume and directory.experiment.exists():
        raise CallboardError(f"there is a run in {name} already: go on with it by --resume, or name another directory")


def find_directory_on_host(experiment: Experiment, resume: bool, options: Any) -> RunDirectory:
    """Returns the directory to run in on one of several hosts, which may join late, or again after a reboot.

    A run that has not ended continues there, with or without `resume`.

    Raises:
      CallboardError: the directory contains another run, a run that has ended, or none to resume.
    """
    if experiment.run_dir is None:
        raise CallboardError("hosts need the run's directory: name it with --run-dir, the same on every host")
    _check_can_be_made(pathlib.Path(experiment.run_dir))
    directory = RunDirectory(pathlib.Path(experiment.run_dir).absolute(), options.host)
    check_not_running(directory.lock(options.is_first))
    if resume:
        if options.is_first:
            find_run_directory(experiment, resume)
        directory.resume()
        return directory
    if directory.end_of_run():
        raise CallboardError(
            f"the run in {directory.path} has ended ({directory.end_of_run()}): go on with it by --resume, or name "
            "another directory"
        )
    if directory.experiment.exists():
        before = settings_by_name(read_experiment(directory.path))
        for name, value in settings_by_name(experiment).items():
            if before.get(name) != value:
                raise CallboardError(
                    f"the run in {directory.path} was begun with {name} {before.get(name)}, and the host "
                    f"{options.host} was started with {value}: take the same settings, or name another directory"
                )
    return directory


def default_run_directory(experiment: Experiment, agent_name: str, now: str) -> pathlib.Path:
    """Returns `runs/<agent>-<environment>-<time>`, the default for runs that name no directory."""
    words = f"{agent_name}-{experiment.env}-{now}"
    return pathlib.Path("runs") / "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in words)


def _check_can_be_made(path: pathlib.Path) -> None:
    """Rejects a directory that cannot be made or written to."""
    if "\0" in str(path):
        raise CallboardError(f"the run directory {str(path)!r} has a null character in its name")
    try:
        there = next(part for part in (path.absolute(), *path.absolute().parents) if os.path.lexists(part))
        if there == path.absolute() and not there.is_dir():
            raise CallboardError(f"the run directory {path} is a file: name another one")
        if not there.is_dir():
            raise CallboardError(f"the run directory {path} cannot be made: {there} is a file")
        if not os.access(there, os.W_OK | os.X_OK):
            raise CallboardError(f"the run directory {path} cannot be written: {there} is not yours to write to")
        longest = max(len(os.fsencode(part)) for part in path.absolute().parts)
        if longest > os.pathconf(there, "PC_NAME_MAX"):
            raise CallboardError(f"the run directory has a name of {longest} bytes: take a shorter one")
    except OSError as error:
        raise CallboardError(f"the run directory {path} cannot be used: {error}") from error
