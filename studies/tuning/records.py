"""Records of the trials of `callboard tune`: the values tried, the metric, and how each trial ended."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from ...errors import CallboardError, printable, rounded
from ...files.atomic_files import write_file
from ...files.guarded_files import problem_of_others, read_json
from ...launch.experiments.yaml_files import format_yaml
from ...launch.run_directory.layout import RunDirectory
from ...settings.setting_types import FiniteFloat, NonNegativeInt, converted
from .search_space import SearchSpace, Values

Mode = Literal["max", "min"]
State = Literal["unfinished", "done", "stopped early", "failed"]


@dataclasses.dataclass
class Trial:
    """One trial: a run with its own directory.

    Attributes:
      number: index of the trial, from 0.
      values: current values of the settings that are searched.
      state: a trial is done when its run has reached one of its limits.
      environment_steps: as last reported.
      reports: environment steps and metric of every report.
      best: the best value of the metric.
      best_steps: environment steps when it was first reached.
      best_values: `values` at that time; under `pbt`, `values` may have changed since.
      takeovers: under `pbt`, the trials whose weights it took over, each with that trial's environment steps at the
        time.
      ended: why its run is over.
      error: the last line of the error.
    """

    number: NonNegativeInt
    values: Values
    state: State = "unfinished"
    environment_steps: NonNegativeInt = 0
    reports: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    best: FiniteFloat | None = None
    best_steps: NonNegativeInt = 0
    best_values: Values = dataclasses.field(default_factory=dict)
    takeovers: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    ended: str = ""
    error: str = ""

    def report(self, steps: int, value: float, mode: Mode) -> None:
        """Records a value of the metric."""
        self.environment_steps = steps
        if (steps, value) not in self.reports:
            self.reports.append((steps, value))
        if not math.isfinite(value):
            return
        if self.best is None or (value > self.best if mode == "max" else value < self.best):
            self.best, self.best_steps, self.best_values = value, steps, dict(self.values)


class TuneDirectory:
    """Layout of the directory of `callboard tune`."""

    def __init__(self, path: pathlib.Path):
        self.path = path.absolute()
        self.settings = self.path / "tune.yaml"
        self.trials = self.path / "trials.json"
        self.best = self.path / "best.yaml"
        self.ray = self.path / "ray"
        """Tune's own state, and the checkpoints that it passes from one trial to another."""

    def create(self, settings: dict[str, Any]) -> None:
        """Creates the directory and writes the settings of the search."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(self.settings, format_yaml(settings))

    def check_owner(self) -> None:
        """Refuses a search whose files others own or can write: Tune unpickles its own files, which executes code.

        Raises:
          CallboardError: names the first file or directory that others own or can write.
        """
        problem = problem_of_others(self.path, [self.settings, self.ray, *sorted(self.ray.rglob("*"))])
        if problem:
            raise CallboardError(
                f"{problem}, and a search that is resumed or plotted runs code that its files name or contain; take it "
                "over with chown and chmod, or give --trust if you trust all who could write there"
            )

    def run(self, number: int) -> RunDirectory:
        """Returns the run directory of a trial."""
        return RunDirectory(self.path / "trials" / f"{number:02d}")

    def read_trials(self, space: SearchSpace | None = None) -> dict[int, Trial]:
        """Returns the recorded trials, by number.

        Args:
          space: that of the search, in which the recorded values must be; None does not compare them.

        Raises:
          CallboardError: the file is damaged.
        """
        if not self.trials.exists():
            return {}
        trials = {}
        try:
            for fields in converted("trials", read_json(self.trials), list[dict[str, Any]]):
                trial = converted("trial", {**fields, "reports": []}, Trial)
                reports = converted("reports", fields["reports"], list[tuple[NonNegativeInt, float | None]])
                trial.reports = [(steps, math.nan if value is None else value) for steps, value in reports]
                if space is not None:
                    space.check_recorded(trial.values)
                    if trial.best is not None:
                        space.check_recorded(trial.best_values)
                trials[trial.number] = trial
        except (CallboardError, OSError, ValueError, TypeError, KeyError) as error:
            changed = "" if space is None else f", or {self.settings.name} was changed"
            raise CallboardError(
                f"{self.trials} is damaged{changed}; replace it by a copy, or begin the search anew"
            ) from error
        return trials

    def write_trials(self, trials: Iterable[Trial]) -> None:
        """Writes all trials atomically."""
        rows = [json.dumps(_row(trial), allow_nan=False) for trial in trials]
        write_file(self.trials, "[\n" + ",\n".join(rows) + "\n]\n")


def _row(trial: Trial) -> dict[str, Any]:
    """Returns a trial as JSON can express it; reports that are no numbers become null."""
    reports = [(steps, value if math.isfinite(value) else None) for steps, value in trial.reports]
    return {**dataclasses.asdict(trial), "reports": reports}


def best_trial(trials: Iterable[Trial], mode: Mode) -> Trial | None:
    """Returns the trial with the best value; among equals, the one with the fewest environment steps until then."""
    sign = 1 if mode == "max" else -1
    with_value = [(-sign * trial.best, trial.best_steps, trial.number) for trial in trials if trial.best is not None]
    number = min(with_value)[2] if with_value else None
    return next((trial for trial in trials if trial.number == number), None)


def trials_table(trials: Sequence[Trial], metric: str, mode: Mode) -> Table:
    """Returns a table of the trials, best first."""
    table = Table(box=None, pad_edge=False, title=Text(printable(f"{metric} ({mode})")), title_justify="left")
    table.add_column("trial", no_wrap=True)
    keys = list(trials[0].values) if trials else []
    for key in keys:
        table.add_column(Text(printable(key.removeprefix("agent."))), justify="right")
    table.add_column("best", justify="right")
    table.add_column("at step", justify="right")
    table.add_column("steps", justify="right")
    table.add_column("ended", no_wrap=True)
    sign = 1 if mode == "max" else -1
    order = sorted(trials, key=lambda t: (t.best is None, -sign * (t.best or 0.0), t.best_steps, t.number))
    for trial in order:
        took = f", weights of others {len(trial.takeovers)} x" if trial.takeovers else ""
        table.add_row(
            f"{trial.number:02d}",
            *(Text(printable(_short(trial.values[key]))) for key in keys),
            "-" if trial.best is None else rounded(trial.best) if abs(trial.best) >= 10 else f"{trial.best:.4g}",
            "-" if trial.best is None else f"{trial.best_steps:,}",
            f"{trial.environment_steps:,}",
            trial.state + took,
        )
    return table


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
