"""Preparation of a run: its checks, its directory, and its program graph."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import launchpad as lp

from ...agents.agent_names import agent_name
from ...agents.policies.acting import trace_layout
from ...agents.registry import agent_class
from ...data import Layout
from ...environments.recorded import require_minari
from ...errors import CallboardError
from ...messages.caller_words import argument
from ...replay import check_saved_tables, latest_checkpoint, made_tables
from ...settings.nested_settings import values_of
from ..experiments.checked_run import Run
from ..experiments.environment_check import check_environment
from ..experiments.experiment import Experiment
from ..experiments.policy_plan import Layouts
from ..experiments.policy_server_settings import check_address_is_free
from ..experiments.recorded_sources import check_datasets, settings_of_recorded_data
from ..experiments.run_checks import check_experiment
from ..experiments.settings import format_experiment
from ..launchers.launcher import Launcher
from ..launchers.registry import launcher_arguments
from ..launchers.run_outcome import Monitor, Outcome, error_text
from ..launchers.screen.run_summary import SummaryMonitor
from ..loggers.prometheus_logger import check_prometheus
from ..node_names import metric_of
from ..nodes.coordination.counters import CounterFile, Counters
from ..nodes.proxy_bypass import bypass_proxies
from ..pictures.live_view import check_display
from ..processes.devices import hide_gpus, take_devices
from ..processes.forked_process import check_tensorflow_works
from ..program import make_program
from ..run_directory.checkpoints import Checkpoints
from ..run_directory.layout import RunDirectory
from ..run_directory.policy_weights import load_weights
from ..saved.saved_policies import check_same_spaces, check_trained_policies
from ..saved.warm_start import check_warm_start

_logger = logging.getLogger(__name__)


class PreparedRun:
    """A run that can be launched, once.

    Args:
      run: the run.
      launcher: launches it.
      add_nodes: called with the program graph and the run; adds nodes of the user's own.
    """

    def __init__(self, run: Run, launcher: Launcher, add_nodes: Callable[[lp.Program, Run], object] | None):
        self.run = run
        self.launcher = launcher
        self._options = [*launcher_arguments(launcher), *_option_of(add_nodes)]
        self.program = make_program(run)
        if add_nodes is not None:
            add_nodes(self.program, run)

    def launch(self, monitor: Monitor) -> Outcome:
        """Runs the program to its end; `monitor` receives status and messages.

        Raises:
          CallboardError: nothing was started; or the launcher returned no `Outcome`.
        """
        summary = SummaryMonitor(self.run, monitor, self._options)
        try:
            outcome = self.launcher.run(self.program, self.run, summary)
        except OSError as error:
            # The launcher itself may lack ports, file descriptors, processes or disk space.
            outcome = Outcome()
            outcome.failed("launcher", error_text(error))
        if not isinstance(outcome, Outcome):
            raise CallboardError(f"run of launcher {self.launcher.name} returned {outcome!r}; return an Outcome")
        return summary.complete(outcome)


@contextlib.contextmanager
def prepared_run(
    experiment: Experiment,
    launcher: Launcher,
    resume: bool,
    add_nodes: Callable[[lp.Program, Run], object] | None,
    controlled: bool,
    overwrite: bool = False,
) -> Iterator[PreparedRun]:
    """Checks an experiment, and holds its run directory within the context.

    Args:
      experiment: what to run.
      launcher: the launcher.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.
      add_nodes: see `PreparedRun`.
      controlled: see `Run`.
      overwrite: whether a new run replaces one that is in `experiment.run_dir`.

    Raises:
      CallboardError: the run cannot be started, because of the problem that the message names.
    """
    bypass_proxies()
    check_can_be_resumed(experiment)
    experiment = launcher.fit(experiment).with_absolute_sources()
    experiment = dataclasses.replace(experiment, **settings_of_recorded_data(experiment, experiment))
    launcher.check(experiment)
    if launcher.in_this_process:
        check_tensorflow_works()
    else:
        # They belong to the nodes; one operation of TensorFlow would take all of their memory.
        hide_gpus()
    check_address_is_free(experiment)
    here = launcher.local_nodes(experiment)
    check_environment(experiment, experiment.node_timeout)
    layouts = check_experiment(experiment, here.learners)
    check_datasets(experiment, experiment, layouts)
    if experiment.record_episodes:
        require_minari("record_episodes")
    if experiment.render is not None and launcher.on_this_machine:
        check_display(argument("training_video_every", "10"))
    if any(one is not None for one in (experiment.video_every, experiment.training_video_every, experiment.render)):
        # Takes long to import.
        from ..nodes.evaluation.video import check_video

        check_video(experiment, layouts.agents)
    if here.coordinator:
        check_prometheus(experiment.prometheus_host, experiment.prometheus_port)
    if launcher.in_this_process:
        take_devices(experiment.learner_devices, experiment.gpu_use)
    if here.checkpoints and (experiment.init_from or experiment.freeze):
        check_warm_start(experiment, experiment.agent, layouts.whole, new=not resume)
    if here.checkpoints:
        check_trained_policies(experiment, layouts.agents)
        if not resume:
            _check_own_networks(experiment, layouts)
    with launcher.open_directory(experiment, resume, overwrite) as directory:
        run = Run.of(experiment, layouts, directory, controlled)
        if here.checkpoints and directory.experiment.exists() and not directory.replaces:
            counters = CounterFile(run).load()
            for one in run.policy_runs:
                warn_of_lost_checkpoints(one, counters)
                _check_run_fits(one.experiment, one.layout, one.directory, here.replay_shards)
        yield PreparedRun(run, launcher, add_nodes)


def _check_own_networks(experiment: Experiment, layouts: Layouts) -> None:
    """Makes networks that contain parts of the user's own, which are refused only when they are made."""
    for name, layout in layouts.policies.items():
        agent = experiment.policies.get(name, experiment.agent)
        if not any(_names_object(value) for key, value in values_of(agent).items() if key.startswith("network.")):
            continue
        agent = experiment.for_policy(agent, layout).agent
        networks = agent.make_networks(layout)
        for variable in getattr(networks, "trainable_variables", ()):
            if variable.dtype.name != "float32":
                raise CallboardError(
                    f"the weights {variable.name} of the user's own part of a network are {variable.dtype.name}: "
                    "learners take those of float32 alone, with which layers may compute in another dtype (see "
                    "tf.keras.mixed_precision)"
                )
        # What fails in a compiled function alone, such as `x.numpy()`.
        trace_layout(agent, layout, networks)


def _names_object(value: Any) -> bool:
    values = value.values() if isinstance(value, Mapping) else [value]
    return any(isinstance(one, str) and ":" in one for one in values)


def _option_of(add_nodes: Callable[[lp.Program, Run], object] | None) -> list[str]:
    """Returns the option that names a function which adds nodes; empty if it cannot be imported by a name."""
    module, name = getattr(add_nodes, "__module__", "__main__"), getattr(add_nodes, "__qualname__", "")
    return [] if module == "__main__" or not name.isidentifier() else ["--add-nodes", f"{module}:{name}"]


def check_can_be_resumed(experiment: Experiment) -> None:
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


def warn_of_lost_checkpoints(run: Run, counters: Counters) -> None:
    """Says that a policy has learned, and will have to begin anew."""
    steps = counters.total(metric_of(run.policy, "learner_steps"))
    if steps and Checkpoints(run.directory).latest() is None:
        _logger.warning(
            f"there is no checkpoint in {run.directory.checkpoints}, where {steps:,} learner steps were made: learning "
            "begins anew"
        )


def _check_run_fits(
    experiment: Experiment, layout: Layout, directory: RunDirectory, shards_here: Sequence[int]
) -> None:
    """Rejects an environment, networks or a replay whose shapes differ from those in the last checkpoint.

    Hosts with separate disks each have only their own shards, `shards_here`.
    """
    agent = experiment.agent
    check_same_spaces(
        directory, layout.spec, "a resumed run cannot change its environment", "start a new run for another environment"
    )
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
    tables = made_tables(agent.make_replay(trace_layout(agent, layout, networks)))
    for shard in kept:
        check_saved_tables(directory.replay(shard), tables)
