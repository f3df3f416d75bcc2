"""Settings of a learner's agent that change with the run: by schedules, by decay, and by its session."""

import functools
from collections.abc import Callable

import tensorflow as tf

from ...experiments.checked_run import Run
from ..reports.reporting import Reporter
from ..reports.run_control import own_settings
from .prepared_learner import PreparedLearner


class FollowedSettings:
    """Lets the live settings follow the run.

    Reports reach several learners at different times, and all must make the same step.  So they take the mean of the
    parts of the run that they know to be done, after every step.

    Args:
      run: the run of the policy.
      prepared: what the learner trains.
      reporter: knows the state of the run.
      learners: number of learners.
    """

    def __init__(self, run: Run, prepared: PreparedLearner, reporter: Reporter, learners: int):
        self._run = run
        self._live = prepared.live
        self._reporter = reporter
        self._learners = learners
        self._changes = 0
        self._agreed = prepared.done
        self._mean: Callable[[tf.Tensor], tf.Tensor] | None = None
        if learners > 1 and prepared.live.decays:
            self._mean = tf.function(functools.partial(_mean_of_learners, prepared.strategy), autograph=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The values that schedules have now."""
        return {f"learner/{name}": value for name, value in self._live.metrics.items()}

    def take_changes(self) -> None:
        """Takes the settings that a session has changed since the last call."""
        control = self._reporter.state.control
        if control.version != self._changes:
            self._changes = control.version
            self._live.change(own_settings(self._run.policy, control.settings))

    def follow(self, unreported_steps: int, learner_steps: int) -> None:
        """Assigns the values for the next step.

        Args:
          unreported_steps: environment steps since the last report, where nodes take turns.
          learner_steps: learner steps made.
        """
        done = self._done(unreported_steps, learner_steps) if self._learners == 1 else self._agreed
        self._live.follow(self._reporter.state.environment_steps + unreported_steps, learner_steps, done)

    def agree(self, unreported_steps: int, learner_steps: int) -> None:
        """Finds with the other learners which part of the run is done; all call it after the same step."""
        if self._mean is not None:
            done = tf.constant(self._done(unreported_steps, learner_steps), tf.float64)
            self._agreed = float(self._mean(done))

    def _done(self, unreported_steps: int, learner_steps: int) -> float:
        """Returns the part of the run that is done, as far as this learner knows."""
        state = self._reporter.state
        environment_steps = state.environment_steps + unreported_steps
        return self._run.acting.part_done(environment_steps, learner_steps, state.seconds)


def _mean_of_learners(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    """Returns the mean over all learners of a scalar; all must call it after the same learner step."""
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(tf.identity, args=(value,)), axis=None)
