"""The evaluator node: plays whole episodes with the newest policy, at last the final one, and keeps the best."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ....agents.policies.acting import evaluate
from ....agents.policies.joint_policy import JointPolicy
from ....callbacks import EvaluationView
from ....data import Version
from ....environments import BatchedEnvironment
from ....environments.batches.episode_metrics import parse_episode_metrics
from ...experiments.checked_run import Run
from ...run_directory.file_errors import file_error
from ..acting.opponents import Opponents
from ..episodes.callback_calls import CallbackCalls, callback_run
from ..episodes.episode_watch import WatchedEnvironment
from ..episodes.joint_episodes import joint_evaluation_metrics
from ..episodes.metric_windows import evaluation_metrics
from ..node import NodeContext, NodeHandle
from ..progress import MarkedEnvironment
from ..reports.messages import Report
from ..reports.reporting import ReportingNode
from .evaluated_policies import EvaluatedPolicies, make_players, mean_step
from .evaluation_watch import EvaluationWatch

if TYPE_CHECKING:
    from .evaluation_videos import EvaluationVideos


class PreparedEvaluator(NamedTuple):
    """Parts of an evaluator node."""

    policies: EvaluatedPolicies
    """The policies that learn: fetches their weights and keeps the best."""
    opponents: Opponents
    """Gets the weights of the others."""
    acting: JointPolicy
    """Acts with all of them."""
    environment: BatchedEnvironment
    """The environments of evaluations."""
    watched: WatchedEnvironment | None
    """Collects metrics of its episodes; None if there are none."""
    videos: EvaluationVideos | None
    """Takes videos after evaluations; None if none are wanted."""

    def close(self) -> None:
        """Closes the environments."""
        if self.videos is not None:
            self.videos.close()
        self.environment.close()


def prepare_evaluator(context: NodeContext, run: Run, learners: Mapping[str, NodeHandle]) -> PreparedEvaluator | None:
    """Builds what an evaluator consists of; weights have to be fetched.

    Args:
      context: context of the node; the result is None if the run stops first.
      run: the run.
      learners: handles of the learners, by policy.
    """
    progress = context.progress
    progress.works_slowly("building networks")
    found = make_players(run, learners, context)
    if found is None:
        return None
    players, learned, opponents = found
    policies = EvaluatedPolicies(run, learned, learners, context)
    progress.works_slowly("making environments")
    environment, acting = players.make(run.acting, run.evaluation.evaluation_batch())
    metrics = parse_episode_metrics(run.episodes.episode_metrics)
    watched = WatchedEnvironment(environment, metrics) if metrics else None
    videos = None
    if run.evaluation.video_every is not None:
        # Takes long to import.
        from .evaluation_videos import EvaluationVideos

        videos = EvaluationVideos(
            run.acting,
            players,
            run.directory,
            context.notify,
            lambda environment: MarkedEnvironment(environment, progress),
        )
    stepped = MarkedEnvironment(watched or environment, progress)
    return PreparedEvaluator(policies, opponents, acting, stepped, watched, videos)


_POLL_SECONDS = 0.1
_WEIGHTS_SECONDS = 0.5
"""Interval at which the newest weights are fetched to learn of their step."""
_REPORT_SECONDS = 5.0
"""Interval between reports of the final evaluation."""


class EvaluatorNode(ReportingNode):
    """Evaluates the newest weights every `evaluate_every` environment steps of the actors, and the final weights.

    Without actors the steps are those of the learner.

    When the limit of environment steps is reached, a running evaluation is abandoned, and the learner's final weights
    are evaluated instead.  `prepare_evaluator` builds what the node consists of.
    """

    achieves_by_steps = False

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        coordinator: NodeHandle,
        learners: Mapping[str, NodeHandle],
    ):
        super().__init__(context, coordinator)
        self._run = run
        self._best_written = True
        self._learners = learners
        self._calls = CallbackCalls(run.episodes.callbacks, callback_run(context.name, run, self.reporter))
        self._evaluation: dict[str, float] | None = None
        self._evaluated: dict[str, float] | None = None
        self._final: dict[str, float] | None = None
        self._next_steps = run.evaluation.evaluate_every
        self._best = -math.inf
        self._weights_step: int | None = None
        self._evaluated_versions: list[Version] = []
        self._opened = contextlib.ExitStack()

    def setup(self) -> None:
        self.begin_reports()
        prepared = prepare_evaluator(self.context, self._run, self._learners)
        if prepared is None:
            return
        self._prepared = prepared
        self._opened.callback(prepared.close)
        self._best = prepared.policies.mean_return()
        self._schedule_next()

    def step(self) -> None:
        self.context.progress.works("idle")
        if self.reporter.state.stopping:
            self._evaluate_final()
        elif self._steps() < self._next_steps:
            self._wait(_POLL_SECONDS if self._run.placement.actors else _WEIGHTS_SECONDS)
        elif self._prepared.policies.fetch():
            self._evaluation = evaluation = self._evaluate(lambda: self.reporter.state.stopping)
            self.reporter.report()
            self._record_video(evaluation, lambda: self.reporter.state.stopping)

    def _evaluate_final(self) -> None:
        """Evaluates the final weights, and then keeps reporting the result."""
        if self._final is None:
            final = self._prepared.policies.final_versions()
            if final is None or not self._prepared.policies.fetch():
                self._wait(_POLL_SECONDS)
                return
            if self._prepared.policies.versions != final:
                return
            if self._evaluated is None or self._evaluated_versions != final:
                self._evaluated = self._evaluate(lambda: False)
                self._record_video(self._evaluated, lambda: False)
            if self.context.stop.is_set():
                return
            self._final = {**(self._evaluated or {}), "evaluator/final": 1.0}
        self._evaluation = self._final
        self.reporter.report()
        # A restarted coordinator has not received the report.
        self._wait(_REPORT_SECONDS)

    def _steps(self) -> int:
        """Returns the steps that evaluations are counted by: the environment's, or without actors the learners'."""
        if self._run.placement.actors:
            return self.reporter.state.environment_steps
        self._prepared.policies.fetch()
        return mean_step(self._prepared.policies.versions)

    def _schedule_next(self) -> None:
        every = self._run.evaluation.evaluate_every
        self._next_steps = (self._steps() // every + 1) * every

    def _wait(self, seconds: float) -> None:
        if not self.context.cooperative:
            self.context.stop.wait(seconds)

    def _evaluate(self, abandoned: Callable[[], bool]) -> dict[str, float] | None:
        """Evaluates the current weights; returns None if the evaluation was abandoned."""
        steps = self.reporter.state.environment_steps
        self._schedule_next()
        begun = time.monotonic()
        versions = self._evaluated_versions = self._prepared.policies.versions
        self._weights_step = mean_step(versions)
        self._prepared.opponents.wait()
        watch = EvaluationWatch(
            self._run.evaluation.evaluation_episodes,
            self._run.evaluation.evaluation_timeout,
            lambda: self.context.stop.is_set() or abandoned(),
            self.context.notify,
            self._run.environment,
            show=self.context.progress.evaluates,
        )
        if self._prepared.watched is not None:
            self._prepared.watched.take_ended()
        self._prepared.acting.view.take_episodes()
        episodes = evaluate(
            self._prepared.environment,
            self._prepared.acting,
            self._run.evaluation.evaluation_episodes,
            watch.stopped,
            watch.episode_ended,
        )
        if watch.timed_out:
            self.context.notify(watch.problem)
        if not episodes:
            return None
        self.context.progress.achieves()
        returns = [episode.episode_return for episode in episodes]
        mean = statistics.fmean(returns)
        if mean > self._best:
            self._save_best(mean)
        self._evaluated = {
            "evaluator/return": mean,
            "evaluator/return_std": statistics.pstdev(returns),
            "evaluator/return_min": min(returns),
            "evaluator/return_max": max(returns),
            "evaluator/best_return": max(mean, self._best),
            "evaluator/episode_length": statistics.fmean(episode.length for episode in episodes),
            "evaluator/learner_step": self._weights_step,
            "evaluator/environment_steps": steps,
            "evaluator/seconds": time.monotonic() - begun,
        }
        quota = self._run.evaluation.evaluation_episodes // self._run.evaluation.evaluation_batch()
        if self._prepared.watched is not None:
            self._evaluated |= evaluation_metrics(self._prepared.watched.take_ended(), quota)
        self._evaluated |= joint_evaluation_metrics(self._prepared.acting.view.take_episodes(), quota)
        lengths = [episode.length for episode in episodes]
        view = EvaluationView(dict(self._evaluated), returns, lengths, self._run.episodes.evaluation_task)
        for name, value in self._calls.call("on_evaluation", view).items():
            self._evaluated[f"evaluator/callbacks/{name}"] = value
        return self._evaluated

    def _record_video(self, evaluation: dict[str, float] | None, abandoned: Callable[[], bool]) -> None:
        videos = self._prepared.videos
        if videos is not None and evaluation is not None:
            steps = int(evaluation["evaluator/environment_steps"])
            videos.after_evaluation(steps, lambda: self.context.stop.is_set() or abandoned())

    def _save_best(self, mean: float) -> None:
        """Saves the current weights as the best; if the write fails, the next better weights are saved instead."""
        try:
            self._prepared.policies.save_best(mean)
        except OSError as error:
            if self._best_written:
                self.context.notify(f"the best policy could not be written: {file_error(error)}; training continues")
            self._best_written = False
        else:
            self._best, self._best_written = mean, True

    def finish(self) -> None:
        self.reporter.close()
        self._opened.close()

    def weights_step(self) -> int | None:
        return self._weights_step

    def collect(self) -> Report:
        evaluation, self._evaluation = self._evaluation, None
        return Report(counts=self._calls.counts, evaluation=evaluation)
