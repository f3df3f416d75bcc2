"""The evaluator node: plays whole episodes with the policy as it is, and keeps the best one."""

import functools
import statistics
import time

import numpy as np

from ..agents.acting import evaluate
from ..agents.weights import WeightClient
from .actor import compile_policy, fetch_weights, make_environments, wait_for_weights
from .best_policy import BestPolicy
from .experiment import Run
from .file_errors import file_error
from .link import LinkedRole, Report
from .role import NodeContext, RoleHandle

_CALL_SECONDS = 5.0


class EvaluatorRole(LinkedRole):
    """Evaluates the newest weights every `evaluate_every` environment steps of the actors."""

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        coordinator: RoleHandle,
        learner: RoleHandle,
    ):
        super().__init__(context, coordinator)
        self._experiment = run.experiment
        self._layout = run.layout
        self._best_policy = BestPolicy(run.directory, functools.partial(context.tell, "say"))
        self._best_written = True
        self._learner = learner
        self._evaluation: dict[str, float] | None = None
        self._next_steps = run.experiment.evaluate_every
        self._best = -np.inf

    def setup(self) -> None:
        experiment = self._experiment
        self._best = self._best_policy.mean_return()
        self.begin_reports()
        self._environment = make_environments(experiment, "evaluator", 0, experiment.evaluation_envs)
        networks = experiment.agent.make_networks(self._layout)
        self._policy = compile_policy(experiment, self._layout, networks, "evaluate", 0, experiment.evaluation_envs)
        self._weights = WeightClient(self._learner.client(_CALL_SECONDS), self._policy.policy.variables)
        steps = self.link.state.environment_steps
        self._next_steps = (steps // experiment.evaluate_every + 1) * experiment.evaluate_every

    def step(self) -> None:
        if self.link.state.environment_steps < self._next_steps:
            if not self.context.cooperative:
                self.context.stop.wait(0.1)
            return
        if not fetch_weights(self._weights, self._learner):
            return
        self._weights.apply()
        if self._weights.version is None and not wait_for_weights(self._weights, self._learner, self.context):
            return
        self.evaluate()

    def evaluate(self) -> None:
        """One evaluation of the weights at hand."""
        steps = self.link.state.environment_steps
        self._next_steps = (steps // self._experiment.evaluate_every + 1) * self._experiment.evaluate_every
        begun = time.monotonic()
        episodes = evaluate(
            self._environment, self._policy, self._experiment.evaluation_episodes, self.context.stop.is_set
        )
        if not episodes:
            return
        returns = [episode.episode_return for episode in episodes]
        version = self._weights.version
        assert version is not None
        mean = statistics.fmean(returns)
        if mean > self._best:
            self._save_best(mean, version.step)
        self._evaluation = {
            "evaluator/return": mean,
            "evaluator/return_std": statistics.pstdev(returns),
            "evaluator/return_min": min(returns),
            "evaluator/return_max": max(returns),
            "evaluator/episode_length": statistics.fmean(episode.length for episode in episodes),
            "evaluator/learner_step": version.step,
            "evaluator/at_environment_steps": steps,
            "evaluator/seconds": time.monotonic() - begun,
        }
        self.link.beat()

    def _save_best(self, mean: float, learner_step: int) -> None:
        """Keeps the weights at hand as the best; where the disk does not take them, the next best ones are tried."""
        try:
            self._best_policy.save(self._policy.policy.variables, mean, learner_step)
        except OSError as error:
            if self._best_written:
                self.context.tell("say", f"the best policy could not be written: {file_error(error)}; training goes on")
            self._best_written = False
        else:
            self._best, self._best_written = mean, True

    def finish(self) -> None:
        self.link.close()
        self._environment.close()

    def collect(self) -> Report:
        evaluation, self._evaluation = self._evaluation, None
        return Report(evaluation=evaluation)
