"""Records of the trials of a search while Ray Tune runs them, and a line for each of their events."""

import pathlib
from collections.abc import Callable
from typing import Any

from ray import tune as ray_tune
from rich.console import Console

from ...errors import printable
from ...files.guarded_files import read_regular
from .records import Trial, TuneDirectory
from .search_definition import Tuning
from .search_space import values_text
from .trial import AT_STEPS, ENDED, STEPS, TOTAL_STEPS, VALUES, origin_of, trial_number


class TrialLogger(ray_tune.Callback):
    """Records the events of trials, and prints a line for each."""

    def __init__(self, path: pathlib.Path, tuning: Tuning):
        self._tuning = tuning
        self._directory = TuneDirectory(path)
        self._trials = self._directory.read_trials()
        self._console = Console(highlight=False, soft_wrap=True, markup=False)

    def __reduce__(self) -> tuple[Callable[..., "TrialLogger"], tuple[Any, ...]]:
        # Tune saves its callbacks with its own state; the state of this one is in `trials.json`.
        return TrialLogger, (self._directory.path, self._tuning)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        values, number = trial.config[VALUES], trial_number(trial.trial_id, trial.config)
        known = self._trials.get(number)
        origin = None if trial.checkpoint is None else origin_of(trial.checkpoint)
        if known is None or origin is None:
            self._trials[number] = Trial(number, values)
            self._notify(number, f"begins: {values_text(values)}")
        elif origin[0] != number:
            # A resumed search may start the trial again from a takeover that is already recorded.
            if known.takeovers[-1:] != [origin]:
                known.takeovers.append(origin)
            self._notify(number, f"continues from trial {origin[0]:02d} at {origin[1]:,} steps: {values_text(values)}")
        else:
            self._notify(number, f"continues from {origin[1]:,} steps")
        known = self._trials[number]
        known.values, known.state, known.ended, known.error = values, "unfinished", "", ""
        self._write()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        known = self._trials[trial_number(trial.trial_id, trial.config)]
        metric, mode = self._tuning.metric, self._tuning.mode
        if ENDED not in result:
            known.report(result[STEPS], result[metric], mode)
            self._notify(known.number, f"at {result[STEPS]:,} steps: {metric} {result[metric]:.4g}")
        else:
            if metric in result:
                known.report(result[AT_STEPS], result[metric], mode)
            known.environment_steps, known.ended = result[TOTAL_STEPS], result[ENDED]
        self._write()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self._trials[trial_number(trial.trial_id, trial.config)]
        known.state = "done" if known.ended else "stopped early"
        best = "" if known.best is None else f", best {self._tuning.metric} {known.best:.4g}"
        self._notify(known.number, f"{known.state} at {known.environment_steps:,} steps{best}")
        self._write()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        number = trial_number(trial.trial_id, trial.config)
        known = self._trials.setdefault(number, Trial(number, trial.config[VALUES]))
        # Tune's own copy of the text is not available yet: it is read from the storage, which is synchronized later.
        error = read_regular(trial.error_file).decode(errors="replace")
        known.state, known.error = "failed", _last_line(error)
        log = self._directory.run(number).log("error")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(error)
        self._notify(number, f"failed: {known.error}")
        self._write()

    def _notify(self, number: int, text: str) -> None:
        self._console.print(f"trial {number:02d} {printable(text)}")

    def _write(self) -> None:
        self._directory.write_trials(self._trials[number] for number in sorted(self._trials))


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1].removeprefix("callboard.errors.CallboardError: ") if lines else "without a word"
