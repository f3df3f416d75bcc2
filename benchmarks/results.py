"""Results of a benchmark: every repeat of both sides, their ratios, and the file format."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

RESULTS = pathlib.Path(__file__).parent / "results"
"""Directory of the results, `<benchmark>.json`."""

_PACKAGES = ("tensorflow", "dm-reverb", "dm-launchpad-nightly", "numpy", "gymnasium", "procgen", "ale-py")


class Spread(NamedTuple):
    """Statistics of several measurements of the same quantity."""

    median: float
    lower: float
    """The lower quartile."""
    upper: float
    """The upper quartile."""
    least: float
    largest: float


def spread(values: Sequence[float]) -> Spread:
    """Return median, quartiles (linearly interpolated) and extremes of at least one value."""
    if len(values) == 1:
        return Spread(*[values[0]] * 5)
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, lower, upper, min(values), max(values))


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """The repeats of one case.

    Attributes:
      name: name of the case.
      unit: unit of the figures.
      ours: one figure per repeat.
      limit: figures of the same repeats, each measured right before or after ours.
      target: value that the ratio should reach; None if there is no target.
      higher_is_better: whether figures are rates rather than costs.
      timestep: number of units of the figures in one timestep of an actor; 0 if the case has no timesteps.
      note: remarks on the figures.
    """

    name: str
    unit: str
    ours: list[float]
    limit: list[float]
    target: float | None = None
    higher_is_better: bool = True
    timestep: int = 0
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Our figure divided by the limit, per repeat; a temporary slowdown of the machine affects both sides."""
        return [ours / limit for ours, limit in zip(self.ours, self.limit, strict=True)]

    @property
    def added_microseconds(self) -> list[float]:
        """How much longer than the limit our side takes for a timestep, in cases with timesteps."""
        return [1e6 * self.timestep * (1 / ours - 1 / limit) for ours, limit in zip(self.ours, self.limit, strict=True)]

    @property
    def reached(self) -> bool | None:
        """Whether the median ratio is as good as the target; None without a target."""
        if self.target is None:
            return None
        median = spread(self.ratios).median
        return median >= self.target if self.higher_is_better else median <= self.target


@dataclasses.dataclass(frozen=True)
class Result:
    """One run of a benchmark.

    Attributes:
      benchmark: its name.
      begun: date and time, UTC.
      quick: whether it was only run to show that it works; its figures are then meaningless.
      commit: commit of the measured code, with a `+` if files differed from it; empty if unknown.
      machine: the machine, and its load at the start.
      versions: versions of Python and of the relevant packages.
      cases: in the order in which they were measured.
    """

    benchmark: str
    begun: str
    quick: bool
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    cases: list[CaseResult]

    def save(self, directory: pathlib.Path = RESULTS) -> pathlib.Path:
        """Write `<benchmark>.json` into a directory, and return its path."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.benchmark}.json"
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        return path


def load(path: pathlib.Path) -> list[Result]:
    """Return the results in a file, or in all files of a directory; files with other content are skipped."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    contents = [json.loads(file.read_text()) for file in files]
    return [
        Result(**{**content, "cases": [CaseResult(**case) for case in content["cases"]]})
        for content in contents
        if "benchmark" in content
    ]


def new_result(benchmark: str, quick: bool) -> Result:
    """Return a result without cases, with the current time and this machine."""
    return Result(
        benchmark=benchmark,
        begun=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        quick=quick,
        commit=_commit(),
        machine=_machine(),
        versions={"python": platform.python_version(), **_versions()},
        cases=[],
    )


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(RESULTS.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
