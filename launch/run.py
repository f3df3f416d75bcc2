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
from .settings import read_experiment, settings_by_name, write_experiment
from .storage import Storage, fetch_run, is_url

LAUNCHERS: Sequence[str] = ("processes", "threads", "inline", "hosts", "ray")


def run(
    experiment: Experiment,
    launcher: str = "processes",
    monitor: Monitor | None = None,
    resume: bool = False,
    options: Any = None,
) -> Outcome:
    """Runs an experiment to its end.

    Args:
      experiment: what to run.
      launcher: one of `LAUNCHERS`.
      monitor: is told what happens; None prints a line now and then.
      resume: whether to go on with the run in `experiment.run_dir`, instead of beginning one there.
      options: of the launcher: a `HostsOptions` for hosts, a `RayOptions` or None for ray.

    Returns:
      How the run has ended.

    Raises:
      CallboardError: nothing was started, because something is wrong that the message names.
    """
    if launcher not in LAUNCHERS:
        raise CallboardError(f"unknown launcher {launcher!r}: there are {', '.join(LAUNCHERS)}")
    _check_agent_is_found_again(experiment.agent)
    if launcher == "hosts":
        options.check()
        experiment = options.cluster.fit(experiment)
    check_launcher_can(launcher, experiment)
    # On other machines it shows when the learner starts.
    learners_here = {"hosts": lambda: options.learners, "ray": lambda: 0}.get(launcher, lambda: None)()
    layout = experiment.check(learners_here)
    if launcher in ("threads", "inline"):
        prepare_devices(device_names(experiment.learner_devices))
    with _open_directory(experiment, launcher, resume, options) as directory:
        # Of several hosts the first has the checkpoints; the others write nothing before they are let in.
        begins = launcher != "hosts" or options.is_first
        if begins and directory.experiment.exists():
            if launcher not in ("threads", "inline"):
                hide_gpus()  # They are the learners'.
            _check_run_fits(experiment, layout, directory, options.replay_shards if launcher == "hosts" else None)
        if begins:
            directory.create()
            write_experiment(experiment, directory.experiment)
        if directory.url:
            Storage(directory.url).store(directory.experiment.name, directory.path)
        one_run = Run(experiment, layout, directory)
        module: Any = importlib.import_module(f".launchers.{launcher}", __package__)
        arguments = [] if options is None else [options]
        with _temporary_files_in(directory.temporary):
            return module.run(make_program(one_run), one_run, monitor or LineMonitor(experiment.max_steps), *arguments)


@contextlib.contextmanager
def _open_directory(experiment: Experiment, launcher: str, resume: bool, options: Any) -> Iterator[RunDirectory]:
    """The directory to run in, and a local one while the run goes on where it is kept at a URL."""
    url = experiment.run_dir
    if launcher == "hosts":
        # First of all, because nothing of a run that goes on here may be touched.
        with options.alone_on_this_machine():
            yield find_directory_on_host(experiment, resume, options)
    elif isinstance(url, str) and is_url(url):
        with tempfile.TemporaryDirectory(prefix="callboard-") as local:
            directory = RunDirectory(pathlib.Path(local), url=url)
            fetch_run(Storage(url), directory)
            _check_begun(directory, url, resume)
            yield directory
    else:
        yield find_run_directory(experiment, resume)


def check_launcher_can(launcher: str, experiment: Experiment) -> None:
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
    _check_begun(directory, path, resume)
    return directory


def _check_begun(directory: RunDirectory, name: str | pathlib.Path, resume: bool) -> None:
    if resume and not directory.experiment.exists():
        raise CallboardError(f"there is no run to resume in {name}: it has no experiment.yaml")
    if not resume and directory.experiment.exists():
        raise CallboardError(f"there is a run in {name} already: go on with it by --resume, or name another directory")


def find_directory_on_host(experiment: Experiment, resume: bool, options: Any) -> RunDirectory:
    """The directory to run in on one of several hosts, which may come late, or once more after a reboot.

    A run that has not reached its end goes on there, whether `resume` is told or not.

    Raises:
      CallboardError: there is another run in it, one that has ended, or none to resume.
    """
    if experiment.run_dir is None:
        raise CallboardError("hosts need the run's directory: name it with --run-dir, the same on every host")
    directory = RunDirectory(pathlib.Path(experiment.run_dir).absolute(), options.host)
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


@contextlib.contextmanager
def _temporary_files_in(directory: pathlib.Path) -> Iterator[None]:
    """Keeps temporary files, such as AutoGraph's, in a directory that is removed afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
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


def _check_run_fits(
    experiment: Experiment, layout: Layout, directory: RunDirectory, shards_here: Sequence[int] | None
) -> None:
    """Refuses to go on with networks, or with a replay, of other shapes than those in the last checkpoint.

    Of several hosts with disks of their own, each has kept its own shards, `shards_here`.
    """
    agent = experiment.agent
    networks = agent.make_networks(layout)
    latest = Checkpoints(directory).latest()
    if latest is not None:
        load_policy(latest / "policy.npz", agent.make_policy(networks, "train").variables)
    if not experiment.checkpoint_replay:
        return
    kept = [shard for shard in directory.replay_shards() if latest_checkpoint(directory.replay(shard))]
    found = directory.replay_shards()
    shards = len(found)
    if kept and shards != layout.shards and found != shards_here:
        raise CallboardError(
            f"the replay of the run was kept in {shards} shard(s): go on with replay_shards {shards}, or begin "
            f"with an empty replay by removing {directory.path / 'replay'}"
        )
    tables = agent.make_replay(trace_layout(agent, layout, networks)).tables()
    for shard in kept:
        check_settings(directory.replay(shard), tables)
