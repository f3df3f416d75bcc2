"""One trial of `callboard tune`: a complete Callboard program in a Ray actor.

It reports a value of the metric together with the learner's newest checkpoint.  Tune may then stop it, continue it
later from that checkpoint, or start another trial from there.
"""

import collections
import dataclasses
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from ray import tune as ray_tune

from ...errors import CallboardError
from ...files.atomic_files import link_or_copy
from ...files.guarded_files import read_json
from ...launch.experiments.parts.environment_part import PoliciesPart
from ...launch.experiments.policy_settings import SHARED, learning_policies
from ...launch.run import run
from ...launch.run_directory.checkpoints import Checkpoints, step_of
from ...launch.run_directory.layout import POLICIES, RunDirectory, is_checkpoint_name
from ...settings.own_modules import search_working_directory
from .records import TuneDirectory
from .search_definition import Tuning
from .search_space import vary_recipe

STEPS = "environment_steps"
"""Key of a report: environment steps when the metric was measured."""
AT_STEPS = "at_environment_steps"
"""Key of the last report, in place of `STEPS`; omitted together with the metric if there is no new value."""
TOTAL_STEPS = "total_environment_steps"
"""Key of the last report: environment steps of the whole run."""
ENDED = "ended"
"""Key of the last report: why the run is over."""
VALUES = "values"
"""Key of a trial's Tune configuration: the values of the settings that are searched."""
NUMBER = "number"
"""Key of a trial's Tune configuration: its number, where Tune's id does not contain it."""
_ORIGIN = "trial.json"
_CHECKPOINT_SECONDS = 1.0


def trial_number(trial_id: str, config: Mapping[str, Any]) -> int:
    """Returns the number of a trial, from 0, given Tune's id and configuration."""
    return int(config[NUMBER]) if NUMBER in config else int(trial_id.rpartition("_")[2])


def origin_of(checkpoint: Any) -> tuple[int, int]:
    """Returns the trial that reported a checkpoint, and its environment steps at the time."""
    with checkpoint.as_directory() as path:
        fields = read_json(pathlib.Path(path) / _ORIGIN)
    return fields["trial"], fields[STEPS]


def run_trial(config: dict[str, Any], tuning: Tuning, directory: str, working_directory: str) -> dict[str, Any]:
    """Runs one trial, from the start or from the checkpoint given by Tune.

    Args:
      config: Tune's configuration, with the values of the settings that are searched.
      tuning: the settings of the search.
      directory: directory of the search.
      working_directory: working directory of the command, which may contain a user-defined agent.

    Returns:
      The last report.
    """
    search_working_directory(working_directory)
    if os.path.isdir(working_directory):  # Paths in settings are relative to it.
        os.chdir(working_directory)
    # Limit the threads to the trial's share of CPUs, before TensorFlow initializes.
    tf.config.threading.set_intra_op_parallelism_threads(max(1, int(tuning.cpus(config[VALUES]))))
    number = trial_number(ray_tune.get_context().get_trial_id(), config)
    run_directory = TuneDirectory(pathlib.Path(directory)).run(number)
    function = tuning.trial_function()
    if function is not None:
        reporter = TrialReporter(tuning, number, run_directory.path, ray_tune.get_checkpoint())
        function({**vary_recipe(tuning.settings, config[VALUES]), "run_dir": str(run_directory.path)}, reporter)
        return reporter.last_report()
    experiment = tuning.experiment(config[VALUES], {"run_dir": str(run_directory.path)})
    experiment = dataclasses.replace(experiment, checkpoint_every=min(experiment.checkpoint_every, _CHECKPOINT_SECONDS))
    checkpoint = ray_tune.get_checkpoint()
    reported = None
    policies = policies_of_trial(experiment)
    if checkpoint is None:
        shutil.rmtree(run_directory.path, ignore_errors=True)
    else:
        _, reported = origin_of(checkpoint)
        with checkpoint.as_directory() as path:
            adopt_checkpoint(pathlib.Path(path), run_directory)
    monitor = TrialMonitor(tuning, number, run_directory, reported, policies)
    outcome = run(experiment, tuning.launcher, monitor, resume=checkpoint is not None)
    if outcome.failed_node is not None:
        raise RuntimeError(f"{outcome.failed_node} failed: {outcome.error}")
    return monitor.last_report(outcome.reason)


def policies_of_trial(experiment: PoliciesPart) -> list[str]:
    """Returns the names of the policies that learn, each with checkpoints of its own, if there are several agents."""
    if not experiment.has_agents:
        return []
    return list(learning_policies(experiment.policies or {SHARED: experiment.agent}, experiment.trained))


def adopt_checkpoint(source: pathlib.Path, run_directory: RunDirectory) -> None:
    """Replaces the checkpoints of a run by a checkpoint of this or another trial, so that the run can be resumed."""
    # The counters must be those of the checkpoint.
    run_directory.counters.unlink(missing_ok=True)
    run_directory.control.unlink(missing_ok=True)
    run_directory.create()
    for part in (source, *(source / POLICIES).glob("*")):
        directory = run_directory if part == source else run_directory.of_policy(part.name)
        Checkpoints(directory).remove_all()
        for step in part.iterdir():
            if is_checkpoint_name(step.name):
                shutil.copytree(step, directory.checkpoints / step.name)
    # `run` resumes only a directory with this file, which may have been written on another machine or not at all.
    run_directory.experiment.touch()


class TrialReporter:
    """The receiver of reports from a trial function of the user's own.

    Attributes:
      number: number of the trial, from 0.
      directory: directory of the trial, which the function may use; it exists.
      checkpoint: directory of a checkpoint that the trial continues from, of this or, under `pbt`, another trial; None
        if it begins anew.
    """

    def __init__(self, tuning: Tuning, number: int, directory: pathlib.Path, checkpoint: Any):
        self._tuning = tuning
        self._last: dict[str, Any] = {}
        self.number = number
        self.directory = directory
        self.checkpoint: pathlib.Path | None = None
        if checkpoint is None:
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        if checkpoint is not None:
            self.checkpoint = pathlib.Path(checkpoint.to_directory(str(directory / "continued")))

    def report(self, value: float, steps: int, checkpoint: str | os.PathLike[str] | None = None) -> None:
        """Reports a value of the metric; the trial may end here, if the scheduler stops it.

        Args:
          value: the metric.
          steps: steps of the trial so far, as `max_steps` counts them.
          checkpoint: directory with everything that a trial needs to continue from here; it is copied.  Without one, a
            trial that is resumed begins anew.

        Raises:
          CallboardError: there is no checkpoint, and the scheduler needs one.
        """
        if checkpoint is None and self._tuning.scheduler == "pbt":
            raise CallboardError("under pbt, reporter.report needs a checkpoint, from which other trials may continue")
        self._last = {self._tuning.metric: float(value), AT_STEPS: int(steps)}
        report = {self._tuning.metric: float(value), STEPS: int(steps)}
        if checkpoint is None:
            ray_tune.report(report)
            return
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
            (pathlib.Path(folder) / _ORIGIN).write_text(json.dumps({"trial": self.number, STEPS: int(steps)}))
            ray_tune.report(report, checkpoint=ray_tune.Checkpoint.from_directory(folder))

    def last_report(self) -> dict[str, Any]:
        """Returns the report made when the function has returned.

        Raises:
          CallboardError: it has reported nothing.
        """
        if not self._last:
            raise CallboardError("the trial function returned without reporter.report(value, steps)")
        return {ENDED: "the trial function returned", TOTAL_STEPS: self._last[AT_STEPS], **self._last}


class _Due(NamedTuple):
    """A value of the metric that is to be reported."""

    value: float
    steps: int
    learner_steps: dict[str, int]
    """By policy, the learner step that its checkpoint has to have; of the only policy under an empty name."""


class TrialMonitor:
    """Reports to Tune every evaluation or, for metrics not of the evaluator, every `evaluate_every` steps.

    A report waits for the first checkpoint that the learner writes after the evaluated weights.  If further values
    arrive before that, all of them are reported in turn with that checkpoint.

    Args:
      tuning: the settings of the search.
      number: number of the trial.
      run_directory: directory of the trial.
      reported: environment steps of the report whose checkpoint the run continues from; None for a new run.
      policies: see `policies_of_trial`.
    """

    def __init__(
        self,
        tuning: Tuning,
        number: int,
        run_directory: RunDirectory,
        reported: int | None,
        policies: Sequence[str] = (),
    ):
        self._continues = reported is not None
        self._tuning = tuning
        self._number = number
        self._directory = run_directory
        self._policies = policies
        self._seen_steps = -1 if reported is None else reported
        self._due: collections.deque[_Due] = collections.deque()
        self._newest: _Due | None = None
        self._status: dict[str, Any] = {}

    def status(self, status: dict[str, Any]) -> None:
        self._take(status)
        while self._due and self._report(self._due[0]):
            self._due.popleft()

    def notify(self, text: str) -> None:
        logging.info("%s", text)

    def last_report(self, reason: str) -> dict[str, Any]:
        """Returns the report made when the run is over.

        Raises:
          CallboardError: the metric never had a value.
        """
        report: dict[str, Any] = {ENDED: reason, TOTAL_STEPS: self._status[STEPS]}
        if self._newest is not None:
            # Not under `STEPS`, so that a trial that is done does not take over other weights.
            return {**report, self._tuning.metric: self._newest.value, AT_STEPS: self._newest.steps}
        if self._continues:
            return report
        there_are = sorted(name for name in self._status if "/" in name)
        raise CallboardError(f"the run had no {self._tuning.metric} until its end; it had {', '.join(there_are)}")

    def _take(self, status: dict[str, Any]) -> None:
        self._status = status
        metric = self._tuning.metric
        if metric not in status:
            return
        if metric.startswith("evaluator/"):
            steps, learner_step = status["evaluator/environment_steps"], status["evaluator/learner_step"]
            new = steps != self._seen_steps
        else:
            steps, learner_step = status[STEPS], status.get("learner/step", status["learner_steps"])
            every = self._tuning.evaluate_every
            new = steps // every > max(self._seen_steps, 0) // every
        if new:
            self._seen_steps = steps
            learner_steps = {"": int(learner_step)}
            if self._policies:
                # Those of now: an evaluation has only their mean.
                learner_steps = {name: int(status.get(f"{name}/learner/step", 0)) for name in self._policies}
            self._newest = _Due(float(status[metric]), int(steps), learner_steps)
            self._due.append(self._newest)

    def _report(self, due: _Due) -> bool:
        """Reports a value with the newest checkpoint; returns False if there is none of these or later weights yet."""
        self._directory.temporary.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory.temporary) as folder:
            copy = pathlib.Path(folder)
            if not all(self._copy_checkpoint(name, step, copy) for name, step in due.learner_steps.items()):
                return False
            (copy / _ORIGIN).write_text(json.dumps({"trial": self._number, STEPS: due.steps}))
            report = {self._tuning.metric: due.value, STEPS: due.steps}
            ray_tune.report(report, checkpoint=ray_tune.Checkpoint.from_directory(folder))
        return True

    def _copy_checkpoint(self, policy: str, learner_step: int, folder: pathlib.Path) -> bool:
        """Copies a policy's newest checkpoint; returns False if there is none of this step or later."""
        directory = self._directory.of_policy(policy)
        latest = Checkpoints(directory).latest()
        if latest is None or step_of(latest) < learner_step:
            return False
        copy = (folder / POLICIES / policy if policy else folder) / latest.name
        try:
            # Links make the copy fast; the learner may remove old checkpoints at the same time.
            shutil.copytree(latest, copy, copy_function=link_or_copy)
        except (shutil.Error, FileNotFoundError):
            if latest.exists():
                raise
            # It has just been removed; a newer one will be there at the next status.
            shutil.rmtree(copy, ignore_errors=True)
            return False
        return True
