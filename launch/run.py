"""Runs an experiment: the single entry point for the command line and for users of the library."""

import contextlib
import importlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ..agents.acting import trace_layout
from ..agents.agent import Agent
from ..agents.registry import agent_class, agent_name
from ..data import Layout
from ..errors import CallboardError
from ..replay import check_settings, latest_checkpoint
from .experiment import Experiment, Run
from .launchers.display import LineMonitor
from .launchers.forkserver import held_open
from .launchers.run_outcome import Monitor, Outcome, error_text
from .launchers.run_summary import SummaryMonitor
from .nodes.devices import device_names, hide_gpus, prepare_devices
from .nodes.proxy_bypass import bypass_proxies
from .program import make_program
from .run_directory.checkpoints import Checkpoints, load_policy
from .run_directory.layout import RunDirectory
from .run_directory.remote_storage import Storage, fetch_run, is_url
from .run_directory.run_lock import run_lease, run_lock
from .settings import format_experiment
from .start_checks import check_begun, check_launcher, check_launcher_can, find_directory_on_host, find_run_directory
from .temporary_files import removed_afterwards

_MODULES = {
    "processes": ".launchers.processes",
    "threads": ".launchers.threads",
    "inline": ".launchers.inline",
    "hosts": ".launchers.hosts.host_run",
    "ray": ".launchers.ray.ray_run",
}
"""The module of each launcher, imported only when the launcher is chosen, because some require Ray."""


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
      launcher: one of `start_checks.LAUNCHERS`.
      monitor: receives the run's events; None prints a status line from time to time.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.
      options: options of the launcher: a `HostsOptions` for hosts, a `RayOptions` or None for ray.

    Returns:
      How the run ended.

    Raises:
      CallboardError: nothing was started, because of the problem named in the message.
    """
    bypass_proxies()
    check_launcher(launcher)
    format_experiment(experiment)  # Rejects an experiment that cannot be written to a file.
    _check_agent_is_found_again(experiment.agent)
    if launcher == "hosts":
        options.check()
        experiment = options.cluster.fit(experiment)
    check_launcher_can(launcher, experiment)
    # A missing device on another machine is only found when the learner starts there.
    learners_here = {"hosts": lambda: options.learners, "ray": lambda: 0}.get(launcher, lambda: None)()
    layout = experiment.check(learners_here)
    if launcher in ("threads", "inline"):
        prepare_devices(device_names(experiment.learner_devices))
    with _open_directory(experiment, launcher, resume, options) as directory:
        # Of several hosts, the first has the checkpoints; the others write nothing before they join the run.
        begins = launcher != "hosts" or options.is_first
        if begins and directory.experiment.exists():
            if launcher not in ("threads", "inline"):
                hide_gpus()  # They belong to the learners.
            _check_run_fits(experiment, layout, directory, options.replay_shards if launcher == "hosts" else None)
        one_run = Run(experiment, layout, directory)
        module: Any = importlib.import_module(_MODULES[launcher], __package__)
        arguments = [] if options is None else [options]
        summary = SummaryMonitor(one_run, monitor or LineMonitor(experiment.max_steps))
        try:
            outcome = module.run(make_program(one_run), one_run, summary, *arguments)
        except OSError as error:
            # The launcher itself may lack ports, file descriptors, processes or disk space.
            outcome = Outcome()
            outcome.failed("launcher", error_text(error))
        return summary.complete(outcome)


@contextlib.contextmanager
def _open_directory(experiment: Experiment, launcher: str, resume: bool, options: Any) -> Iterator[RunDirectory]:
    """Yields the directory to run in; for a run directory at a URL, a temporary local one."""
    url = experiment.run_dir
    if isinstance(url, str) and is_url(url):
        local = pathlib.Path(tempfile.mkdtemp(prefix="callboard-"))
        with removed_afterwards(local), run_lease(Storage(url), launcher):
            directory = RunDirectory(local, url=url)
            fetch_run(Storage(url), directory)
            check_begun(directory, url, resume)
            yield directory
        return
    if launcher == "hosts":
        directory = find_directory_on_host(experiment, resume, options)
        lock_file = directory.lock(options.is_first)
    else:
        directory = find_run_directory(experiment, resume)
        lock_file = directory.lock()
    with run_lock(lock_file, launcher) as lock, held_open(lock), removed_afterwards(directory.temporary, [lock]):
        # Left by a launcher that was killed before it could remove it.
        shutil.rmtree(directory.temporary, ignore_errors=True)
        if launcher != "hosts":
            # Another run may have started and ended since the directory was chosen.
            check_begun(directory, experiment.run_dir or directory.path, resume)
        yield directory


def _check_agent_is_found_again(agent: Agent) -> None:
    """Rejects an agent that `experiment.yaml` could not name: its run could be neither resumed nor evaluated."""
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
    """Rejects networks or a replay whose shapes differ from those in the last checkpoint.

    Hosts with separate disks each have only their own shards, `shards_here`.
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
