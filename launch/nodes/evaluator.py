"""The evaluator node: plays whole episodes with the newest policy, at last the final one, and keeps the best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...agents.acting import evaluate
from ...agents.weights import WeightClient
from ...callbacks import EvaluationView
from ...data import Version
from ...environments.episode_metrics import parse_episode_metrics
from ..experiment import Run
from ..run_directory.best_policy import BestPolicy
from ..run_directory.file_errors import file_error
from .acting_setup import compile_policy, make_environments
from .callback_calls import CallbackCalls, callback_run
from .episode_watch import WatchedEnvironment
from .evaluation_watch import EvaluationWatch
from .metric_windows import evaluation_metrics
from .node import NodeContext, NodeHandle, Unreachable
from .progress import MarkedEnvironment
from .reporting import Report, ReportingNode
from .weight_fetching import fetch_weights, wait_for_weights

if TYPE_CHECKING:
    from .evaluation_videos import EvaluationVideos

_CALL_SECONDS = 5.0
_POLL_SECONDS = 0.1
_REPORT_SECONDS = 5.0
"""Interval between reports of the final evaluation."""


class EvaluatorNode(ReportingNode):
    """Evaluates the newest weights every `evaluate_every` environment steps of the actors, and the final weights.

    When the limit of environment steps is reached, a running evaluation is abandoned, and the learner's final weights
    are evaluated instead.
    """

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        coordinator: NodeHandle,
        learner: NodeHandle,
    ):
        super().__init__(context, coordinator)
        self._experiment = run.experiment
        self._layout = run.layout
        self._best_policy = BestPolicy(run.directory, context.notify)
        self._best_written = True
        self._learner = learner
        self._calls = CallbackCalls(run.experiment.callbacks, callback_run(context.name, run, self.reporter))
        self._watched: WatchedEnvironment | None = None
        self._evaluation: dict[str, float] | None = None
        self._evaluated: dict[str, float] | None = None
        self._final: dict[str, float] | None = None
        self._next_steps = run.experiment.evaluate_every
        self._best = -np.inf
        self._weights_step: int | None = None
        self._directory = run.directory
        self._videos: EvaluationVideos | None = None

    def setup(self) -> None:
        experiment = self._experiment
        self._best = self._best_policy.mean_return()
        self.begin_reports()
        progress = self.context.progress
        progress.works_slowly("making environments")
        environments = make_environments(experiment, "evaluator", 0, experiment.evaluation_envs)
        metrics = parse_episode_metrics(experiment.episode_metrics)
        if metrics:
            environments = self._watched = WatchedEnvironment(environments, metrics)
        self._environment = MarkedEnvironment(environments, progress)
        progress.works_slowly("building networks")
        networks = experiment.agent.make_networks(self._layout)
        mode = experiment.evaluation_policy_mode()
        self._policy = compile_policy(experiment, self._layout, networks, mode, 0, experiment.evaluation_envs)
        if experiment.video_every is not None:
            # Takes long to import.
            from .evaluation_videos import EvaluationVideos

            self._videos = EvaluationVideos(
                experiment,
                compile_policy(experiment, self._layout, networks, mode, 0, 1),
                self._directory,
                self.context.notify,
                lambda environment: MarkedEnvironment(environment, progress),
            )
        self._weights = WeightClient(self._learner.client(_CALL_SECONDS), self._policy.policy.variables)
        steps = self.reporter.state.environment_steps
        self._next_steps = (steps // experiment.evaluate_every + 1) * experiment.evaluate_every

    def step(self) -> None:
        self.context.progress.works("idle")
        if self.reporter.state.stopping:
            self._evaluate_final()
        elif self.reporter.state.environment_steps < self._next_steps:
            self._wait(_POLL_SECONDS)
        elif fetch_weights(self._weights, self._learner):
            self._weights.apply()
            if self._weights.version is not None or wait_for_weights(self._weights, self._learner, self.context):
                self._evaluation = evaluation = self._evaluate(lambda: self.reporter.state.stopping)
                self.reporter.report()
                self._record_video(evaluation, lambda: self.reporter.state.stopping)

    def _evaluate_final(self) -> None:
        """Evaluates the final weights, and then keeps reporting the result."""
        if self._final is None:
            final = self._final_version()
            if final is None or not fetch_weights(self._weights, self._learner):
                self._wait(_POLL_SECONDS)
                return
            self._weights.apply()
            if self._weights.version != final:
                return
            if self._evaluated is None or self._evaluated["evaluator/learner_step"] != final.step:
                self._evaluated = self._evaluate(lambda: False)
                self._record_video(self._evaluated, lambda: False)
            if self.context.stop.is_set():
                return
            self._final = {**(self._evaluated or {}), "evaluator/final": 1.0}
        self._evaluation = self._final
        self.reporter.report()
        # A restarted coordinator has not received the report.
        self._wait(_REPORT_SECONDS)

    def _final_version(self) -> Version | None:
        """Returns the learner's final version; None while it is still learning, or if it does not answer."""
        self.context.progress.waits(f"weights of {self._learner.name}")
        try:
            final = self._learner.client(_CALL_SECONDS).final_version()
        except Unreachable:
            return None
        return None if final is None else Version(*final)

    def _wait(self, seconds: float) -> None:
        if not self.context.cooperative:
            self.context.stop.wait(seconds)

    def _evaluate(self, abandoned: Callable[[], bool]) -> dict[str, float] | None:
        """Evaluates the current weights; returns None if the evaluation was abandoned."""
        steps = self.reporter.state.environment_steps
        self._next_steps = (steps // self._experiment.evaluate_every + 1) * self._experiment.evaluate_every
        begun = time.monotonic()
        self._weights_step = None if self._weights.version is None else self._weights.version.step
        watch = EvaluationWatch(
            self._experiment.evaluation_episodes,
            self._experiment.evaluation_timeout,
            lambda: self.context.stop.is_set() or abandoned(),
            self.context.notify,
        )
        if self._watched is not None:
            self._watched.take_ended()
        episodes = evaluate(
            self._environment,
            self._policy,
            self._experiment.evaluation_episodes,
            watch.stopped,
            watch.episode_ended,
        )
        if watch.timed_out:
            self.context.notify(watch.problem)
        if not episodes:
            return None
        returns = [episode.episode_return for episode in episodes]
        version = self._weights.version
        assert version is not None
        mean = statistics.fmean(returns)
        if mean > self._best:
            self._save_best(mean, version.step)
        self._evaluated = {
            "evaluator/return": mean,
            "evaluator/return_std": statistics.pstdev(returns),
            "evaluator/return_min": min(returns),
            "evaluator/return_max": max(returns),
            "evaluator/best_return": max(mean, self._best),
            "evaluator/episode_length": statistics.fmean(episode.length for episode in episodes),
            "evaluator/learner_step": version.step,
            "evaluator/environment_steps": steps,
            "evaluator/seconds": time.monotonic() - begun,
        }
        if self._watched is not None:
            quota = self._experiment.evaluation_episodes // self._experiment.evaluation_envs
            self._evaluated |= evaluation_metrics(self._watched.take_ended(), quota)
        lengths = [episode.length for episode in episodes]
        view = EvaluationView(dict(self._evaluated), returns, lengths, self._experiment.evaluation_task)
        for name, value in self._calls.call("on_evaluation", view).items():
            self._evaluated[f"evaluator/callbacks/{name}"] = value
        return self._evaluated

    def _record_video(self, evaluation: dict[str, float] | None, abandoned: Callable[[], bool]) -> None:
        if self._videos is not None and evaluation is not None:
            steps = int(evaluation["evaluator/environment_steps"])
            self._videos.after_evaluation(steps, lambda: self.context.stop.is_set() or abandoned())

    def _save_best(self, mean: float, learner_step: int) -> None:
        """Saves the current weights as the best; if the write fails, the next better weights are saved instead."""
        try:
            self._best_policy.save(self._policy.policy, mean, learner_step)
        except OSError as error:
            if self._best_written:
                self.context.notify(f"the best policy could not be written: {file_error(error)}; training continues")
            self._best_written = False
        else:
            self._best, self._best_written = mean, True

    def finish(self) -> None:
        self.reporter.close()
        if self._videos is not None:
            self._videos.close()
        self._environment.close()

    def weights_step(self) -> int | None:
        return self._weights_step

    def collect(self) -> Report:
        evaluation, self._evaluation = self._evaluation, None
        return Report(counts=self._calls.counts, evaluation=evaluation)
