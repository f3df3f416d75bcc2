"""What is shown to the user at the start and at the end of a run: agent, environment, score and run directory."""

import os
from typing import Any

from ...agents.registry import agent_name
from ..experiment import Run
from .run_outcome import Monitor, Outcome

_SCORERS = ("evaluator", "actor")
"""First parts of the names of metrics that are kept for the outcome."""


class SummaryMonitor:
    """Forwards status and messages, announces the run at the first status, and keeps the scores for the `Outcome`.

    Args:
      run: the run.
      monitor: receives status and messages.
    """

    def __init__(self, run: Run, monitor: Monitor):
        self._run = run
        self._monitor = monitor
        self._begun = False
        self._scores: dict[str, float] = {}

    def status(self, status: dict[str, Any]) -> None:
        if not self._begun:
            self._begun = True
            experiment = self._run.experiment
            self._monitor.say(
                f"{agent_name(experiment.agent)} on {experiment.env} for {experiment.max_steps:,} environment steps, "
                f"run directory {run_location(self._run)}"
            )
        # A restarted coordinator does not have the last evaluation.
        self._scores.update({name: value for name, value in status.items() if name.partition("/")[0] in _SCORERS})
        self._monitor.status(status)

    def say(self, text: str) -> None:
        self._monitor.say(text)

    def complete(self, outcome: Outcome) -> Outcome:
        """Adds the scores and the run directory to an outcome."""
        outcome.score = self._scores.get("evaluator/return")
        outcome.score_std = self._scores.get("evaluator/return_std")
        outcome.training_return = self._scores.get("actor/episode_return")
        outcome.run_directory = run_location(self._run)
        return outcome


def run_location(run: Run) -> str:
    """Returns the run directory as a URL, or as a path that is relative if it is below the working directory."""
    directory = run.directory
    if directory.url:
        return directory.url
    relative = os.path.relpath(directory.path)
    return str(directory.path) if relative.startswith(os.pardir) else relative


def describe_end(outcome: Outcome, evaluation_episodes: int) -> str:
    """Returns the last line of a run's output."""
    parts = [f"The run is over: {outcome.reason}."]
    if outcome.score is not None:
        parts.append(
            f"Score: {outcome.score:.1f} ± {outcome.score_std or 0.0:.1f} over {evaluation_episodes} episodes."
        )
    elif outcome.training_return is not None:
        parts.append(f"Not evaluated; mean return of the last training episodes: {outcome.training_return:.1f}.")
    parts.append(f"Run directory: {outcome.run_directory}")
    return " ".join(parts)
