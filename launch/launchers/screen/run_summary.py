"""The texts at the start and at the end of a run: agent, environment, score, run directory, and commands to follow."""

import contextlib
import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from ....agents.agent_names import agent_name
from ....environments import environment_text
from ....environments.external.spaces_only import EXTERNAL_PREFIX, RECORDED_PREFIX
from ....environments.recorded import open_data
from ....errors import (
    CallboardError,
    counted,
    did_you_mean,
    nearest,
    printable,
    printable_lines,
    rounded,
    with_deviation,
)
from ...experiments.checked_run import Run
from ...experiments.option_parsing import option_name
from ...experiments.parts.environment_part import EnvironmentPart
from ...experiments.parts.placement_part import LimitsPart
from ...experiments.recorded_metadata import is_harmless, recorded_environment
from ...experiments.settings import experiment_settings
from ...experiments.stop_conditions import parse_conditions
from ...node_names import metric_of
from ...nodes.coordination.stopping_rules import setting_that_ended
from ...plain_names import in_command
from ...run_directory.best_policy import BestPolicy
from ...run_directory.layout import RunDirectory, is_checkpoint_name
from ..run_outcome import Monitor, Outcome, OutputClosed
from .display import print_line

_OF_SCRIPT = "__main__:"
"""Beginning of the names of classes and functions of the program that was started, or of a notebook."""


def next_commands(run: Run, location: str, outcome: Outcome, options: Sequence[str]) -> tuple[str, ...]:
    """Returns commands that evaluate or serve the policy of a run, if there is one, and that continue the run.

    Commands cannot import what is in the program that was started; for a run with such an environment, these are calls
    in Python.

    Args:
      run: the run.
      location: its directory, as the user may name it.
      outcome: how it ended.
      options: options of `callboard train` with which it is resumed, such as `("--launcher", "threads")`.
    """
    further = _settings_to_train_further(run.experiment, outcome.reason)
    # Without an evaluation there are no best weights, which are taken by default.
    newest = outcome.best_score is None
    checkpoint = "latest" if newest else "best" if outcome.ended_below_best else ""
    has_policy = not newest or bool(run.directory.url) or _has_checkpoint(run.directory)
    if _OF_SCRIPT in json.dumps(experiment_settings(run.experiment)):
        changes = "".join(f", {name}={value!r}" for name, value in {"run_dir": location, **further}.items())
        launcher = dict(zip(options, options[1:], strict=False)).get("--launcher")
        given = "" if launcher is None else f"{launcher!r}, "
        again = f"callboard.run(dataclasses.replace(experiment{changes}), {given}resume=True)"
        policy = f"callboard.load_policy({location + f'@{checkpoint}' * bool(checkpoint)!r})"
        return (policy, again) if has_policy else (again,)
    limits = [word for name, value in further.items() for word in (option_name(name), _option_value(value))]
    again = shlex.join(["callboard", "train", "--resume", "--run-dir", in_command(location), *options, *limits])
    words = _words_with_policy(run.experiment, location, checkpoint)
    return (shlex.join(words), again) if has_policy else (again,)


def _words_with_policy(environment: EnvironmentPart, location: str, checkpoint: str) -> list[str]:
    """Returns the command that evaluates the policy of a run, or serves it to simulators that no evaluation can step.

    It names an environment for a run from recorded episodes alone, which has none.
    """
    env = environment.env if isinstance(environment.env, str) else ""
    if env.startswith(EXTERNAL_PREFIX):
        return ["callboard", "serve", in_command(location + f"@{checkpoint}" * bool(checkpoint))]
    words = ["callboard", "evaluate", in_command(location), *(["--checkpoint", checkpoint] if checkpoint else [])]
    dataset = env.removeprefix(RECORDED_PREFIX)
    if dataset == env:
        return words
    named = None
    with contextlib.suppress(CallboardError):
        named = recorded_environment(open_data(dataset).metadata)
    return [*words, "--env", printable(named[0]) if named is not None and is_harmless(named[0], {}) else "NAME"]


def _settings_to_train_further(limits: LimitsPart, reason: str) -> dict[str, object]:
    """Returns the limit or goal that ended a run, with a value with which the run continues; empty for another end."""
    name = setting_that_ended(reason)
    if name in ("max_steps", "max_learner_steps", "max_seconds"):
        return {name: 2 * getattr(limits, name)}
    if name == "stop_when":
        held = [condition for condition in parse_conditions(limits.stop_when) if str(condition) in reason]
        return {name: [str(other) for other in parse_conditions(limits.stop_when) if other not in held]}
    return {} if name is None else {name: None}


def _option_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _has_checkpoint(directory: RunDirectory) -> bool:
    parts = [directory, *directory.policies.values()]
    return any(is_checkpoint_name(path.name) for part in parts for path in part.checkpoints.glob("*"))


_SCORERS = ("evaluator", "actor")
"""First parts of the names of metrics that are kept for the outcome."""


class SummaryMonitor:
    """Forwards status and messages, announces the run at the first status, and keeps the scores for the `Outcome`.

    Args:
      run: the run.
      monitor: receives status and messages.
      options: options of `callboard train` with which the run is resumed, such as `("--launcher", "threads")`.
    """

    def __init__(self, run: Run, monitor: Monitor, options: Sequence[str] = ()):
        self._run = run
        self._options = options
        self._best: float | None = None
        self._monitor = monitor
        self._begun = False
        self._scores: dict[str, float] = {}
        self._counts: dict[str, float] = {}
        """Learner steps and items in replay at the last status, of the whole run and of each policy."""
        self._steps_before = 0
        """Learner steps at the first status, those before a run was resumed."""
        self._names: set[str] = set()
        """Names of all values so far."""

    def status(self, status: dict[str, Any]) -> None:
        if not self._begun:
            self._begun = True
            self._steps_before = status.get("learner_steps", 0)
            length = f"for {self._run.limits.max_steps:,} environment steps"
            if not self._run.placement.actors:
                steps = self._run.limits.max_learner_steps
                length = "from recorded episodes" + (f" for {steps:,} learner steps" if steps else "")
            self._monitor.notify(
                f"{agent_name(self._run.agent)} on {environment_text(self._run.environment.env)} {length}, "
                f"run directory {run_location(self._run)}"
            )
            advice = [line for one in self._run.policy_runs for line in one.agent.advice(one.layout)]
            for line in dict.fromkeys(advice):
                self._monitor.notify(line)
        # A restarted coordinator does not have the last evaluation.
        self._scores.update({name: value for name, value in status.items() if name.partition("/")[0] in _SCORERS})
        self._names.update(status)
        counted = ("learner_steps", "replay/inserted_")
        self._counts.update({name: value for name, value in status.items() if any(one in name for one in counted)})
        if "evaluator/return" in status:
            self._best = max(status["evaluator/return"], -math.inf if self._best is None else self._best)
        self._monitor.status(status)

    def notify(self, text: str) -> None:
        self._monitor.notify(text)

    def complete(self, outcome: Outcome) -> Outcome:
        """Adds the scores, the run directory and the next commands to an outcome."""
        outcome.score = self._scores.get("evaluator/return")
        outcome.score_std = self._scores.get("evaluator/return_std")
        outcome.training_return = self._scores.get("actor/episode_return")
        outcome.run_directory = run_location(self._run)
        outcome.best_score = self._best
        if not self._run.directory.url and self._run.directory.best_policy.exists():
            # A run that was resumed may have had its best evaluation before.
            earlier = BestPolicy(self._run.directory).mean_return()
            if self._best is None or earlier > self._best:
                outcome.best_score = earlier
        if outcome.failed_node is None and outcome.exit_code == 0:
            for policy_run in self._run.policy_runs:
                self._report_nothing_learned(policy_run, outcome)
        if outcome.failed_node is None and self._counts.get("learner_steps", 0) > self._steps_before:
            self._report_absent_metrics()
        outcome.next_commands = next_commands(self._run, outcome.run_directory, outcome, self._options)
        return outcome

    def _report_absent_metrics(self) -> None:
        """Reports conditions that never held because the run had no such metric."""
        stages = [stage.when for stage in self._run.episodes.curriculum if stage.when is not None]
        for setting, texts in (("stop_when", self._run.limits.stop_when), ("curriculum: when", stages)):
            for condition in parse_conditions(texts, setting):
                if condition.metric not in self._names:
                    near = nearest(condition.metric, self._names)
                    hint = "" if near is None else f"; {did_you_mean(near)}"
                    self._monitor.notify(
                        f"{setting} {str(condition)!r} never held: the run had no value of {condition.metric}{hint}"
                    )

    def _report_nothing_learned(self, policy_run: Run, outcome: Outcome) -> None:
        """Reports that a policy has made no learner step, and why; if its learner has died, the run has failed."""
        if self._counts.get(metric_of(policy_run.policy, "learner_steps"), 1):
            return
        beginning_of_learner = f"learner/{policy_run.policy}/" if policy_run.policy else "learner/"
        for node, why in outcome.restarted.items():
            if node.startswith(beginning_of_learner):
                outcome.failed(node, why)
                return
        beginning = metric_of(policy_run.policy, "replay/inserted_")
        items = [count for name, count in self._counts.items() if name.startswith(beginning)]
        whose = f" for the policy {policy_run.policy!r}" if policy_run.policy else ""
        cause = "the run was too short for a batch; train for longer, or make agent.batch_size smaller"
        if items and not sum(items):
            cause = "nothing was written to replay; train for longer, or show the end of episodes before the next begin"
        self._monitor.notify(f"No learner step was made{whose}, so nothing was learned: {cause}")


def run_location(run: Run) -> str:
    """Returns the run directory as a URL, or as a path that is relative if it is below the working directory."""
    directory = run.directory
    if directory.url:
        return directory.url
    relative = os.path.relpath(directory.path)
    return str(directory.path) if relative.startswith(os.pardir) else relative


def show_end(outcome: Outcome, evaluation_episodes: int) -> None:
    """Prints how a run ended: a failure to standard error, with the traceback if the error has one."""
    with contextlib.suppress(OSError, OutputClosed):
        if outcome.failed_node is None:
            print_line(describe_end(outcome, evaluation_episodes))
            return
        error = (outcome.error or "").rstrip()
        end = f"{outcome.failed_node} failed:{os.linesep if os.linesep in error else ' '}{error}"
        print(printable_lines(end), file=sys.stderr)


def describe_end(outcome: Outcome, evaluation_episodes: int) -> str:
    """Returns how a run ended in one line, and below it the next commands, each on a line of its own to be copied."""
    parts = [f"The run is over: {outcome.reason}."]
    if outcome.score is not None:
        parts.append(
            f"Score: {with_deviation(outcome.score, outcome.score_std or 0.0)} over "
            f"{counted(evaluation_episodes, 'episode')}."
        )
    elif outcome.training_return is not None:
        parts.append(f"Not evaluated; mean return of the last training episodes: {rounded(outcome.training_return)}.")
    if outcome.best_score is not None and outcome.ended_below_best:
        parts.append(f"Best evaluation: {rounded(outcome.best_score)}; its policy is kept as the checkpoint `best`.")
    parts.append(f"Run directory: {outcome.run_directory}")
    lines = [" ".join(parts)]
    if outcome.next_commands:
        lines += ["Next:", *(f"  {command}" for command in outcome.next_commands)]
    return "\n".join(lines)
