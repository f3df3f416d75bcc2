"""Runs an experiment: the single entry point for the command line and for users of the library."""

from collections.abc import Sequence

from ..agents.acting import trace_layout
from ..agents.agent import Agent
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
from .run_directory.checkpoints import Checkpoints, load_policy
from .run_directory.layout import RunDirectory
from .settings import format_experiment


def run(
    experiment: Experiment,
    launcher: str | Launcher = DEFAULT_LAUNCHER,
    monitor: Monitor | None = None,
    resume: bool = False,
) -> Outcome:
    """Runs an experiment to its end.

    Args:
      experiment: what to run.
      launcher: a launcher with its options, or the name of one, see `launchers.registry`.
      monitor: receives the run's events; None prints a status line from time to time.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.

    Returns:
      How the run ended.

    Raises:
      CallboardError: nothing was started, because of the problem named in the message.
    """
    bypass_proxies()
    if isinstance(launcher, str):
        launcher = make_launcher(launcher)
    format_experiment(experiment)  # Rejects an experiment that cannot be written to a file.
    _check_agent_is_found_again(experiment.agent)
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
        summary = SummaryMonitor(one_run, monitor or LineMonitor(experiment.max_steps))
        try:
            outcome = launcher.run(make_program(one_run), one_run, summary)
        except OSError as error:
            # The launcher itself may lack ports, file descriptors, processes or disk space.
            outcome = Outcome()
            outcome.failed("launcher", error_text(error))
        return summary.complete(outcome)


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
    experiment: Experiment, layout: Layout, directory: RunDirectory, shards_here: Sequence[int]
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
    if kept and shards != layout.shards and found != list(shards_here):
        raise CallboardError(
            f"the replay of the run was saved in {shards} shard(s); continue with replay_shards {shards}, or remove "
            f"{directory.path / 'replay'} to start with an empty replay"
        )
    tables = agent.make_replay(trace_layout(agent, layout, networks)).tables()
    for shard in kept:
        check_settings(directory.replay(shard), tables)
