"""The counters of a run, and the file that keeps them."""

import json
import pathlib

from ....files.atomic_files import write_file
from ....files.guarded_files import read_json
from ...experiments.checked_run import Run
from ...run_directory.checkpoints import Checkpoints, checked_sources

_PAST = "past"
"""The source that holds the counts of earlier incarnations."""
_INCARNATIONS = 2


class Counters:
    """Counts by source, and their totals.

    A source, `actor/0#<id>`, is one incarnation of a node.  It reports totals since its start, so a report that
    arrives twice changes nothing, and a restarted coordinator receives the same totals again from every running node.
    The two newest incarnations of each node are kept apart, because a report may be late.  Older ones are summed into
    one source, so size and cost do not grow with restarts.

    Args:
      sources: an earlier value of `sources`, the oldest incarnation of a node first.
    """

    def __init__(self, sources: dict[str, dict[str, int]] | None = None):
        self._sources: dict[str, dict[str, int]] = {}
        self._incarnations: dict[str, list[str]] = {}
        self._totals: dict[str, int] = {}
        for source, counts in (sources or {}).items():
            self.update(source, counts)

    @property
    def sources(self) -> dict[str, dict[str, int]]:
        """A copy of the counts by source."""
        return {source: dict(counts) for source, counts in self._sources.items()}

    def update(self, source: str, counts: dict[str, int]) -> bool:
        """Takes the totals of a source; returns False if a newer incarnation of its node has already reported."""
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = {}
            self._begin(source)
        for name, count in counts.items():
            before = known.get(name, 0)
            if count > before:
                known[name] = count
                self._totals[name] = self._totals.get(name, 0) + count - before
        return source == _PAST or self._incarnations[source.partition("#")[0]][-1] == source

    @property
    def incarnations(self) -> dict[str, str]:
        """The id of the newest incarnation of every node that has reported, by the node's name."""
        return {node: sources[-1].partition("#")[2] for node, sources in self._incarnations.items()}

    def total(self, name: str) -> int:
        return self._totals.get(name, 0)

    @property
    def totals(self) -> dict[str, int]:
        return dict(self._totals)

    def add_past(self, name: str, count: int) -> None:
        """Adds a count that belongs to no known source, such as steps of an older checkpoint."""
        past = self._sources.setdefault(_PAST, {})
        past[name] = past.get(name, 0) + count
        self._totals[name] = self._totals.get(name, 0) + count

    def _begin(self, source: str) -> None:
        if source == _PAST:
            return
        incarnations = self._incarnations.setdefault(source.partition("#")[0], [])
        incarnations.append(source)
        if len(incarnations) > _INCARNATIONS:
            past = self._sources.setdefault(_PAST, {})
            for name, count in self._sources.pop(incarnations.pop(0)).items():
                past[name] = past.get(name, 0) + count


class CounterFile:
    """Keeps the counters in the run directory, in addition to those in the learner's checkpoints.

    The file is written about once a second.  What is lost with a coordinator is at most what nodes that died before it
    had reported since the last write.

    Args:
      run: the run.
    """

    def __init__(self, run: Run):
        self._path = run.directory.counters
        self._checkpoints = [Checkpoints(policy_run.directory) for policy_run in run.policy_runs]
        self._written: dict[str, int] | None = None

    def load(self) -> Counters:
        """Returns the newest of the counters in the file and in the newest checkpoint of each policy."""
        found = [Counters(_read(self._path)), *(Counters(one.counter_sources()) for one in self._checkpoints)]
        counters = max(found, key=lambda one: (one.total("environment_steps"), one.total("learner_steps")))
        if not counters.total("learner_steps"):
            counters.add_past("learner_steps", sum(one.newest_step() for one in self._checkpoints))
        return counters

    def save(self, counters: Counters) -> None:
        """Replaces the file if a count has changed.

        Raises:
          OSError: the file could not be written; its old content is kept.
        """
        if counters.totals == self._written:
            return
        write_file(self._path, json.dumps(counters.sources))
        self._written = counters.totals


def _read(path: pathlib.Path) -> dict[str, dict[str, int]]:
    """Reads the sources in a file; empty if it is missing or damaged."""
    try:
        return checked_sources(read_json(path))
    except (OSError, ValueError):
        return {}
