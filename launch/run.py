"""Runs of experiments from their beginning to their end."""

from collections.abc import Callable

import launchpad as lp

from ..settings.setting_arguments import checked_names
from .experiments.checked_run import Run
from .experiments.environment_check import check_environment
from .experiments.experiment import Experiment, check_is_experiment
from .experiments.new_or_resumed import find_run_directory
from .experiments.run_checks import check_experiment
from .launchers.launcher import Launcher
from .launchers.registry import DEFAULT_LAUNCHER
from .launchers.run_outcome import Monitor, Outcome
from .launchers.screen.display import LineMonitor
from .launchers.screen.run_summary import show_end
from .runs.prepared_run import check_can_be_resumed
from .saved.saved_policies import check_trained_policies
from .saved.warm_start import check_warm_start
from .session import Session


@checked_names
def run(
    experiment: Experiment,
    launcher: str | Launcher = DEFAULT_LAUNCHER,
    monitor: Monitor | None = None,
    resume: bool = False,
    add_nodes: Callable[[lp.Program, Run], object] | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Runs an experiment to its end.

    Args:
      experiment: what to run.
      launcher: a launcher with its options, or the name of one, see `launchers.registry`.
      monitor: receives the run's events; None prints a status line from time to time, and how it ended.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.
      add_nodes: called with the program graph and the run; adds nodes of your own, see docs/guides/own_node.md.
      overwrite: whether a new run replaces one that is in `experiment.run_dir`.

    Returns:
      How the run ended.

    Raises:
      CallboardError: nothing was started, because of the problem named in the message.
    """
    check_is_experiment(experiment)
    shown = LineMonitor(experiment.max_steps) if monitor is None else monitor
    outcome = Session(experiment, launcher, shown, resume, add_nodes, overwrite).run()
    if monitor is None:
        show_end(outcome, experiment.evaluation_episodes)
    return outcome


@checked_names
def make_run(experiment: Experiment, resume: bool = False) -> Run:
    """Returns the run of an experiment for `program.make_program`, to be launched by Launchpad itself.

    Args:
      experiment: what to run.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.

    Raises:
      CallboardError: the experiment or the run directory is refused.
    """
    check_is_experiment(experiment)
    check_can_be_resumed(experiment)
    experiment = experiment.with_absolute_sources()
    check_environment(experiment, experiment.node_timeout)
    layouts = check_experiment(experiment)
    check_warm_start(experiment, experiment.agent, layouts.whole, new=not resume)
    check_trained_policies(experiment, layouts.agents)
    return Run.of(experiment, layouts, find_run_directory(experiment, resume))
