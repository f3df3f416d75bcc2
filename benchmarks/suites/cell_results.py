"""The results of a cell, one small JSON file for each side, which are kept in the repository."""

import dataclasses
import json
import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import __version__
from ...errors import CallboardError
from ...files.atomic_files import write_file
from ...files.guarded_files import read_json
from ...studies.comparison.run_results import RETURN, RunResult, read_result
from ..results import RESULTS
from .algorithm_version import algorithm_version
from .suite import PEER_AGENTS, SuiteCell

SUITES = RESULTS / "suites"
TRAINING_RETURN = "actor/episode_return"
_MOST_POINTS = 200
_REQUIREMENTS = pathlib.Path(__file__).parents[1] / "peers" / "requirements" / "sb3.txt"


@dataclasses.dataclass(frozen=True)
class SeedResult:
    """The result of one run.

    Attributes:
      score: mean return of the last evaluation; None of a run that was stopped before its first one.
      score_std: standard deviation over its episodes.
      training: mean return of the last training episodes.
      steps: environment steps of the run.
      seconds: seconds of the run.
      cpu_seconds: processor seconds of the run, over all its processes.
      evaluations: environment steps and mean return of each evaluation.
      curve: environment steps and mean return of training episodes, at most 200 points.
    """

    score: float | None
    score_std: float | None
    training: float | None
    steps: int
    seconds: float
    cpu_seconds: float
    evaluations: Sequence[tuple[float, float]]
    curve: Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class CellResult:
    """The results of a side of a cell.

    Attributes:
      suite, cell, side, agent, env, steps: see `SuiteCell`.
      command: the command of a run, with `SEED` for the seed.
      settings: the settings that were set, by flat name.
      version: version of the library.
      algorithm: what the agent's scores depend on, see `algorithm_version`; for the peer the library's version.
      machine: processor and number of cores.
      seeds: results of the runs that are finished, by seed.
      failed: exit codes of the runs that failed, by seed.
      unfinished: results so far of runs that were stopped, by seed.
    """

    suite: str
    cell: str
    side: str
    agent: str
    env: str
    steps: int
    command: str
    settings: Mapping[str, Any]
    version: str
    algorithm: str
    machine: str
    seeds: Mapping[int, SeedResult]
    failed: Mapping[int, int] = dataclasses.field(default_factory=dict)
    unfinished: Mapping[int, SeedResult] = dataclasses.field(default_factory=dict)

    @property
    def scores(self) -> list[float]:
        return [result.score for result in self.seeds.values() if result.score is not None]

    @property
    def training(self) -> list[float]:
        return [result.training for result in self.seeds.values() if result.training is not None]

    @property
    def cpu_seconds(self) -> float:
        return sum(result.cpu_seconds for result in self.seeds.values())

    def with_seed(self, seed: int, result: SeedResult | int) -> "CellResult":
        """Returns the results with those of one more run, or with the exit code of one that has failed."""
        failed = {key: code for key, code in self.failed.items() if key != seed}
        unfinished = {key: values for key, values in self.unfinished.items() if key != seed}
        if isinstance(result, int):
            return dataclasses.replace(self, failed={**failed, seed: result}, unfinished=unfinished)
        seeds = dict(sorted({**self.seeds, seed: result}.items()))
        return dataclasses.replace(self, seeds=seeds, failed=failed, unfinished=unfinished)


def empty_result(cell: SuiteCell) -> CellResult:
    """Returns the results of a cell of which no run is finished."""
    return CellResult(
        suite=cell.suite,
        cell=cell.name,
        side=cell.side,
        agent=cell.agent if cell.is_ours else PEER_AGENTS[cell.agent],
        env=cell.env,
        steps=cell.steps,
        command=command_of(cell),
        settings=dict(_flat(cell.recipe)) if cell.is_ours else {},
        version=__version__ if cell.is_ours else _peer_version(),
        algorithm=_algorithm(cell),
        machine=f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores",
        seeds={},
    )


def result_path(directory: pathlib.Path, cell: SuiteCell) -> pathlib.Path:
    return directory / f"{cell.full_name}.json"


def load_result(path: pathlib.Path) -> CellResult | None:
    """Reads the results of a cell; None if there are none.

    Raises:
      CallboardError: the file is damaged.
    """
    try:
        content = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CallboardError(f"{path} cannot be read: {error}") from error
    try:
        seeds, unfinished = (
            {int(seed): SeedResult(**values) for seed, values in runs.items()}
            for runs in (content.pop("seeds"), content.pop("unfinished", {}))
        )
        failed = {int(seed): int(code) for seed, code in content.pop("failed", {}).items()}
        return CellResult(seeds=seeds, failed=failed, unfinished=unfinished, **content)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CallboardError(f"{path} is damaged ({error}); remove it, and run the cell again") from error


def save_result(path: pathlib.Path, result: CellResult) -> None:
    """Writes the results of a cell; each run is a line, so that changes are easy to read."""
    content = dataclasses.asdict(result)
    seeds, unfinished, failed = content.pop("seeds"), content.pop("unfinished"), content.pop("failed")
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    if failed:
        lines.append(f' "failed": {json.dumps(failed)}')
    if unfinished:
        lines.append(_runs_text("unfinished", unfinished))
    lines.append(_runs_text("seeds", seeds))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _runs_text(name: str, runs: Mapping[int, Any]) -> str:
    lines = [f"  {json.dumps(str(seed))}: {json.dumps(values)}" for seed, values in runs.items()]
    return f' "{name}": {{\n' + ",\n".join(lines) + "\n }"


def is_current(result: CellResult, cell: SuiteCell) -> bool:
    """Returns whether the settings, the steps and the algorithm are still those with which the runs were made."""
    now = empty_result(cell)
    return (result.algorithm, result.steps, dict(result.settings)) == (now.algorithm, now.steps, dict(now.settings))


def seed_result(run: pathlib.Path, cpu_seconds: float, is_finished: bool = True) -> SeedResult:
    """Reads the result of a run that has ended, ours or the peer's.

    Raises:
      CallboardError: it has no evaluation; or, if it is not finished, no training episode either.
    """
    evaluated, training = _values(run, RETURN), _values(run, TRAINING_RETURN)
    some = evaluated if is_finished or evaluated is not None else training
    if some is None:
        raise CallboardError(f"{run} has no result: no {'evaluation' if is_finished else 'episode'} has ended")
    return SeedResult(
        score=None if evaluated is None else _rounded(evaluated.score),
        score_std=None if evaluated is None or evaluated.deviation is None else _rounded(evaluated.deviation),
        training=None if training is None else _rounded(training.score),
        steps=some.total_steps,
        seconds=round(some.total_seconds, 1),
        cpu_seconds=round(cpu_seconds, 1),
        evaluations=[] if evaluated is None else _points(evaluated),
        curve=[] if training is None else _points(training),
    )


def _values(run: pathlib.Path, metric: str) -> RunResult | None:
    try:
        return read_result(str(run), metric, include_running=False)
    except Exception:  # It has no value yet.
        return None


def as_runs(result: CellResult, metric: str) -> list[RunResult]:
    """Returns the runs of a cell as the ones that `callboard compare` computes with.

    Args:
      result: the results.
      metric: `RETURN` for evaluations, `TRAINING_RETURN` for training episodes.
    """
    runs = []
    for seed, values in result.seeds.items():
        points = values.evaluations if metric == RETURN else values.curve
        if not points:
            continue
        steps, returns = np.array(points, np.float64).T
        runs.append(
            RunResult(
                name=f"{result.suite}/{result.cell}",
                seed=seed,
                settings={"agent.name": result.agent, "env": result.env},
                steps=steps,
                seconds=steps / max(values.steps, 1) * values.seconds,
                values=returns,
                deviation=values.score_std if metric == RETURN else None,
                total_steps=values.steps,
                total_seconds=values.seconds,
            )
        )
    return runs


def command_of(cell: SuiteCell) -> str:
    """Returns the command of a run."""
    if not cell.is_ours:
        return f"sb3_defaults.py {PEER_AGENTS[cell.agent]} {cell.env} {cell.steps} SEED DIRECTORY"
    settings = dict(_flat(cell.recipe))
    agent = settings.pop("agent.name")
    words = [f"--{key.replace('_', '-')} {_word(value)}" for key, value in settings.items()]
    return " ".join(["callboard train", str(agent), *words, "--seed SEED", *cell.options])


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"'{text}'" if set(text) & set(' []{}"') else text


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        is_group = isinstance(value, Mapping) and value
        found += _flat(value, f"{prefix}{key}.") if is_group else [(f"{prefix}{key}", value)]
    return found


def _points(run: RunResult) -> list[tuple[float, float]]:
    """Returns the points of a curve, its last one among them."""
    count = len(run.values)
    kept = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).round().astype(int))
    return [(float(run.steps[index]), _rounded(float(run.values[index]))) for index in kept]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _algorithm(cell: SuiteCell) -> str:
    return algorithm_version(cell.agent) if cell.is_ours else _peer_version()


def _peer_version() -> str:
    for line in _REQUIREMENTS.read_text().splitlines():
        name, _, version = line.partition("==")
        if name == "stable_baselines3":
            return version
    raise AssertionError(f"{_REQUIREMENTS} names no stable_baselines3")


def _processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"
