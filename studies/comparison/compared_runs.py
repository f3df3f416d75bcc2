"""`compare`: reads runs and compares them, as `callboard compare` does."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import CallboardError, check_type, named_path
from ...settings.setting_arguments import check_argument_names
from ...settings.setting_types import converted
from .comparison import Comparison, ComparisonSettings, group_runs
from .comparison import compare as compare_groups
from .run_results import read_results


def compare(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    include_running: bool = False,
    group_by: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    **settings: Any,
) -> Comparison:
    """Compares runs; those whose settings are equal but for the seed are one group.

        for group in compare(["runs/ppo", "runs/impala"]).groups:
            print(group.group.name, group.mean, group.std)

    Args:
      runs: run directories, or folders of runs; paths or URLs.
      include_running: whether runs that have not ended are compared as far as they are.
      group_by: settings that make groups of the runs of an agent in an environment; see `group_runs`.
      labels: for directories, the names of the groups of their runs.
      **settings: fields of `ComparisonSettings`, such as `goal=475`.

    Raises:
      CallboardError: none of the runs can be compared, or a setting is wrong.
    """
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    if not given:
        raise CallboardError("name a run to compare, or a folder of runs")
    check_type("include_running", include_running, bool, "True or False")
    check_type("labels", labels, Mapping | None, "names of groups by directory")
    group_by = converted("group_by", group_by, tuple[str, ...])
    check_argument_names(ComparisonSettings, settings)
    made = converted("", settings, ComparisonSettings)
    made.check()
    return compare_runs([named_path(name, "run") for name in given], made, include_running, group_by, labels)


def compare_runs(
    names: Sequence[str],
    settings: ComparisonSettings,
    include_running: bool = False,
    group_by: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Comparison:
    """Reads runs and compares them.

    Raises:
      CallboardError: none of the runs can be compared.
    """
    results = read_results(names, settings.metric, include_running)
    if not results.runs:
        more = f", and {len(results.left_out) - 1} more" if len(results.left_out) > 1 else ""
        raise CallboardError(f"no run can be compared: {results.left_out[0]}{more}")
    groups = group_runs(results.runs, group_by, labels)
    unused = settings.score_ranges.keys() - {group.env for group in groups}
    notes = [f"score_ranges names {env}, in which no run is compared" for env in sorted(unused)]
    return compare_groups(groups, settings, [*results.left_out, *notes])
