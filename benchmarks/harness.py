"""Registry and runner of benchmarks: both sides are measured in turn, several times."""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..launch.nodes.node import NodeRules
from .results import CaseResult, Result, new_result, spread
from .side import MakeSide, SideProcess

BENCHMARKS: Mapping[str, str] = MappingProxyType(
    {
        "acting": "steps/s of an actor node that writes to replay, over a loop that only steps and acts",
        "recording": "steps/s of an actor node whose episodes are recorded, over one whose are not",
        "replay": "items/s through our writers and datasets, over Reverb by hand",
        "learning": "learner steps/s of a program with a full replay, over the same step on one constant batch",
        "weights": "from a learner's update to the last of 32 actors, and what it costs the learner",
        "start": "command to first learner step, over `import tensorflow`",
        "scale": "steps/s of 1 to 64 actors whose environments only wait, over the ideal",
        "simulated": "what 4 to 1,000 simulated actors cost coordinator, link and replay, over their exact rates",
        "memory": "bytes in replay for a frame, over the frame's own",
        "peers": "steps/s, seconds to a score and frames/s of other libraries on the same work",
    }
)
"""Names and descriptions of the benchmarks, which are modules of this package with a function `cases(quick)`.

A benchmark with more than two sides has a function `measure(repeats, quick, only, notify)` instead, which returns the
results of its cases.
"""


class Case(NamedTuple):
    """Two sides to compare; see `results.CaseResult` for the fields that both classes have."""

    name: str
    unit: str
    ours: MakeSide
    limit: MakeSide | float
    """The other side, or its figure if that is known."""
    target: float | None = None
    higher_is_better: bool = True
    timestep: int = 0
    rules: NodeRules | None = None
    """Policy of the node whose TensorFlow settings both sides use."""


def cases_of(benchmark: str, quick: bool) -> list[Case]:
    """Return the cases of a benchmark; if `quick`, small ones that only show that it works."""
    return _module(benchmark).cases(quick)


def _module(benchmark: str) -> Any:
    return importlib.import_module(f".{benchmark}", __package__)


def run_benchmark(
    benchmark: str, repeats: int, quick: bool = False, only: str = "", notify: Callable[[str], None] = lambda line: None
) -> Result:
    """Measure all cases of a benchmark.

    Args:
      benchmark: one of `BENCHMARKS`.
      repeats: measurements of each side of each case.
      quick: whether to use small cases.
      only: part of the names of the cases to measure; empty selects all.
      notify: called with a line for each pair of figures.

    Raises:
      SideFailed: a side could not be measured.
    """
    result = new_result(benchmark, quick)
    if hasattr(_module(benchmark), "measure"):
        return dataclasses.replace(result, cases=_module(benchmark).measure(repeats, quick, only, notify))
    measured = [run_case(case, repeats, notify) for case in cases_of(benchmark, quick) if only in case.name]
    return dataclasses.replace(result, cases=measured)


def run_case(case: Case, repeats: int, notify: Callable[[str], None]) -> CaseResult:
    """Measure both sides in turn; the limit goes first in every other repeat."""
    figures: dict[str, list[float]] = {"ours": [], "limit": []}
    with contextlib.ExitStack() as opened:
        sides: dict[str, SideProcess | None] = {"ours": None, "limit": None}
        for name, made in (("ours", case.ours), ("limit", case.limit)):
            if callable(made):
                sides[name] = SideProcess(made, case.rules)
                opened.callback(sides[name].close)  # type: ignore[union-attr]
        for repeat in range(repeats):
            for name in ("ours", "limit") if repeat % 2 == 0 else ("limit", "ours"):
                side = sides[name]
                figures[name].append(case.limit if side is None else side.measure())  # type: ignore[arg-type]
            ours, limit = figures["ours"][-1], figures["limit"][-1]
            notify(f"{case.name}: {ours:,.4g} against {limit:,.4g} {case.unit}, ratio {ours / limit:.3f}")
    measured = CaseResult(
        case.name, case.unit, figures["ours"], figures["limit"], case.target, case.higher_is_better, case.timestep
    )
    ratio = spread(measured.ratios)
    notify(f"{case.name}: ratio {ratio.median:.3f}, quartiles {ratio.lower:.3f} to {ratio.upper:.3f}")
    return measured
