"""Runs an experiment: the single entry point for the command line and for users of the library."""

from collections.abc import Callable, Sequence

import launchpad as lp

from ..agents.acting import trace_layout
from ..agents.registry import agent_class, agent_name
from ..data import Layout
from ..errors import CallboardError
from ..replay import check_settings, latest_checkpoint
from .experiment import Experiment, Run
from .launchers.display import LineMonitor
from .launchers.launcher import Launcher
from .launchers.registry import DEFAULT_LAUNCHER, make_launcher
from .launchers.run_outcome import Monitor, Outcome, error_text
from .launchers.run_summary import SummaryMonitor
from .nodes.devices import device_names, hide_gpus, prepare_devices
from .nodes.proxy_bypass import bypass_proxies
from .program import make_program
from .run_directory.checkpoints import Checkpoints, load_weights
from .run_directory.layout import RunDirectory
from .run_directory.new_or_resumed import find_run_directory
from .settings import format_experiment


def run(
    experiment: Experiment,
    launcher: str | Launcher = DEFAULT_LAUNCHER,
    monitor: Monitor | None = None,
    resume: bool = False,
    add_nodes: Callable[[lp.Program, Run], object] | None = None,
) -> Outcome:
    """Runs an experiment to its end.

    Args:
      experiment: what to run.
      launcher: a launcher with its options, or the name of one, see `launchers.registry`.
      monitor: receives the run's events; None prints a status line from time to time.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.
      add_nodes: called with the program graph and the run; adds nodes of your own, see docs/guides/own_node.md.

    Returns:
      How the run ended.

    Raises:
      CallboardError: nothing was started, because of the problem named in the message.
    """
    bypass_proxies()
    if isinstance(launcher, str):
        launcher = make_launcher(launcher)
    _check_can_be_resumed(experiment)
    experiment = launcher.fit(experiment)
    launcher.check(experiment)
    part = launcher.local_part(experiment)
    layout = experiment.check(part.learners)
    if launcher.in_this_process:
        prepare_devices(device_names(experiment.learner_devices))
    with launcher.open_directory(experiment, resume) as directory:
        if part.checkpoints and directory.experiment.exists():
            if not launcher.in_this_process:
                hide_gpus()  # They belong to the learners.
            _check_run_fits(experiment, layout, directory, part.replay_shards)
        one_run = Run(experiment, layout, directory)
        summary = SummaryMonitor(one_run, monitor or LineMonitor(experiment.max_steps), launcher.name)
        program = make_program(one_run)
        if add_nodes is not None:
            add_nodes(program, one_run)
        try:
            outcome = launcher.run(program, one_run, summary)
        except OSError as error:
            # The launcher itself may lack ports, file descriptors, processes or disk space.
            outcome = Outcome()
            outcome.failed("launcher", error_text(error))
        return summary.complete(outcome)


def make_run(experiment: Experiment, resume: bool = False) -> Run:
    """Returns the run of an experiment for `program.make_program`, to be launched by Launchpad itself.

    Args:
      experiment: what to run.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.

    Raises:
      CallboardError: the experiment or the run directory is refused.
    """
    _check_can_be_resumed(experiment)
    return Run(experiment, experiment.check(), find_run_directory(experiment, resume))


def _check_can_be_resumed(experiment: Experiment) -> None:
    """Rejects an experiment that cannot be written to `experiment.yaml` and read again."""
    format_experiment(experiment)
    name = agent_name(experiment.agent)
    if not name.startswith("__main__:"):
        try:
            if agent_class(name) is type(experiment.agent):
                return
        except CallboardError:
            pass
        raise CallboardError(f"the agent {name!r} cannot be imported by that name; define its class at a module's top")


def _check_run_fits(
    experiment: Experiment, layout: Layout, directory: RunDirectory, shards_here: Sequence[int]
) -> None:
    """Rejects networks or a replay whose shapes differ from those in the last checkpoint.

    Hosts with separate disks each have only their own shards, `shards_here`.
    """
    agent = experiment.agent
    networks = agent.make_networks(layout)
    latest = Checkpoints(directory).latest()
    if latest is not None:
        load_weights(latest / "policy.npz", agent.make_policy(networks, "train").variables)
    if not experiment.checkpoint_replay:
        return
    kept = [shard for shard in directory.replay_shards() if latest_checkpoint(directory.replay(shard))]
    found = directory.replay_shards()
    shards = len(found)
    if kept and shards != layout.shards and found != list(shards_here):
        raise CallboardError(
            f"the replay of the run was saved in {shards} shard(s); continue with replay_shards {shards}, or remove "
            f"{directory.path / 'replay'} to start with an empty replay"
        )
    tables = agent.make_replay(trace_layout(agent, layout, networks)).tables()
    for shard in kept:
        check_settings(directory.replay(shard), tables)
