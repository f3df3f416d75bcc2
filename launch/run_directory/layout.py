"""The layout of the run directory, which contains everything that a run writes."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ...data import RECORDED
from ...errors import CallboardError
from ...files.atomic_files import remove_drafts, write_file
from ...files.guarded_files import problem_of_others, read_regular
from .directory_identity import DirectoryIdentity

Entry = TypeVar("Entry")
CHECKPOINT_NAME = re.compile(r"(\d+)(?:\.(\d+))?")
"""Names of checkpoints: the learner step, and a number if the step was saved several times."""
_SNAPSHOT_NAME = re.compile(r"(.+)-(\d+)\.npz")

_MODE = 0o700
MOST_METRICS_BYTES = 2**28
"""Bound on `metrics.jsonl` for those who read it; after a year it has about 100 MB."""

POLICIES = "policies"
"""Name of the directory that contains those of the policies of a run with several."""


def is_checkpoint_name(name: str) -> bool:
    """Returns whether a directory of this name in `checkpoints` is a checkpoint, not a draft or a damaged one."""
    return CHECKPOINT_NAME.fullmatch(name) is not None


KEEP_MARK = "keep"
"""Name of an empty file in a checkpoint that later ones do not replace."""


def newest_of_steps(entries: Sequence[Entry], step_of: Callable[[Entry], object], keep: int) -> Sequence[Entry]:
    """Returns the newest checkpoints to keep: of every step the newest, unless that would leave fewer than there are.

    Args:
      entries: all checkpoints, the newest last.
      step_of: returns the step of one.
      keep: how many to keep.
    """
    newest = list({step_of(entry): entry for entry in entries}.values())
    return newest[-keep:] if len(newest) >= keep else entries[-keep:]


_WRITTEN_TOO = frozenset(("ended", "join-token", "mlruns", "policy_server_token", "socket"))
"""Names of what some runs write, or write while they run, besides `RunDirectory.written`."""


class Part:
    """A part of a run directory, as an attribute whose value is its path.

    Args:
      name: its path within the directory.
    """

    def __init__(self, name: str):
        self._name = name

    def __get__(self, directory: "RunDirectory", owner: type) -> pathlib.Path:
        return directory.path / self._name


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """The paths of everything that a run writes.  Directories are made by `create`, not before."""

    path: pathlib.Path
    host: str = ""
    """Name of this machine, if several machines share the directory."""
    url: str = ""
    """URL of the run directory if the run is stored remotely; `path` is then its local copy.  See `remote_storage`."""
    replaces: bool = False
    """Whether the run that begins there removes the files of another first, see `replaced_run`."""
    identity: DirectoryIdentity | None = dataclasses.field(default=None, compare=False)
    """The directory of the whole run, as it was when its launcher locked it; None if that is not checked."""

    experiment = Part("experiment.yaml")
    """The YAML file from which the run can be repeated."""
    environment = Part("environment.json")
    """The spec of the run's environment as JSON, for policies that act without it."""
    checkpoints = Part("checkpoints")
    best_policy = Part("checkpoints/best.npz")
    """The policy with the best evaluation so far."""
    best_policy_before = Part("checkpoints/best-before.npz")
    """The best policy before `best_policy`, in case that file is damaged."""
    snapshots = Part("snapshots")
    """Earlier weights of a policy, with which others play against it."""
    metrics = Part("metrics.jsonl")
    counters = Part("counters.json")
    """The counters of the whole run, as last written by the coordinator."""
    ratings = Part("ratings.json")
    """The ratings of policies that play against each other."""
    control = Part("control.json")
    """Changes made while the run was in progress: the environments' task, and settings of the agent."""
    coordinator = Part("coordinator.json")
    """Where the coordinator listens; exists only while the run is running."""
    socket = Part("socket")
    """The socket of a run whose nodes share a thread; exists only while the run is running."""
    network = Part("network.txt")
    """The table of the networks' layers."""
    tensorboard = Part("tensorboard")
    videos = Part("videos")
    recorded = Part(RECORDED)
    """The data set of the episodes that the run records."""
    card = Part("policy.json")
    """The description of a zoo's policy; directories with it are no runs that could be resumed."""
    _end_marker = Part("ended")

    def of_policy(self, name: str) -> "RunDirectory":
        """Returns the directory of a policy of the run; the run's own of the only policy, which has no name."""
        if not name:
            return self
        below = f"{POLICIES}/{name}"
        url = f"{self.url}/{below}" if self.url else ""
        return RunDirectory(self.path / below, self.host, url, identity=self.identity)

    def identified(self) -> "RunDirectory":
        """Returns the directory, which exists, with its identity."""
        return dataclasses.replace(self, identity=DirectoryIdentity.of(self.path))

    def check_owner(self, otherwise: str) -> None:
        """Refuses a run that others may have written, whose settings name code that would run as this user.

        Args:
          otherwise: what to do if the run is trusted, for the message.

        Raises:
          CallboardError: its directory or its settings belong to another user, or can be written by others.
        """
        problem = problem_of_others(self.path, [self.experiment])
        if problem:
            raise CallboardError(
                f"{problem}, and the settings of a run name code that would run as you; look at experiment.yaml first, "
                f"and if you trust it, {otherwise}{', or chmod go-w' if 'written' in problem else ''}"
            )

    @property
    def is_lost(self) -> bool:
        """Whether `check_same` raises an error."""
        try:
            self.check_same()
        except CallboardError:
            return True
        return False

    def check_same(self) -> None:
        """Checks that the run still has its directory, if its identity is known.

        Raises:
          CallboardError: it was renamed, deleted or replaced.
        """
        if self.identity is not None:
            self.identity.check()

    @property
    def policies(self) -> dict[str, "RunDirectory"]:
        """The directories of the run's policies, by name; empty for a run of one policy."""
        names = sorted(path.name for path in self.path.glob(f"{POLICIES}/*") if path.is_dir())
        return {name: self.of_policy(name) for name in names}

    def snapshot(self, name: str, number: int) -> pathlib.Path:
        """The file of a snapshot; `name` is the policy that plays with it."""
        return self.snapshots / f"{name}-{number}.npz"

    def snapshots_of(self, name: str) -> dict[int, pathlib.Path]:
        """The files of the snapshots with which the policy `name` plays, by number, the oldest first."""
        found = [(_SNAPSHOT_NAME.fullmatch(path.name), path) for path in self.snapshots.glob("*.npz")]
        return dict(sorted((int(match[2]), path) for match, path in found if match and match[1] == name))

    @property
    def temporary(self) -> pathlib.Path:
        """Temporary files of this machine's nodes; exists only while they run."""
        return self.path / f"tmp-{self.host}" if self.host else self.path / "tmp"

    def lock(self, has_checkpoints: bool = True) -> pathlib.Path:
        """Returns the lock file of a launcher; of hosts that share the directory, all but the first have their own."""
        return self.path / ("lock" if has_checkpoints else f"lock-{self.host}")

    def replay(self, shard: int) -> pathlib.Path:
        """Returns the directory of a replay shard's checkpoints."""
        return self.path / "replay" / str(shard)

    def replay_shards(self) -> list[int]:
        """Returns the shards that have a directory."""
        return sorted(int(path.name) for path in self.path.glob("replay/*") if path.name.isdigit())

    def log(self, node: str) -> pathlib.Path:
        """Returns the log file of a node such as `actor/0`."""
        return self.path / "logs" / f"{node.replace('/', '-')}.log"

    def end_of_run(self) -> str:
        """Returns why a run over several hosts has ended for good; empty if it has not, or was resumed."""
        try:
            return read_regular(self._end_marker).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def write_end_of_run(self, reason: str) -> None:
        """Marks the run as ended, so that other hosts do not start it again before it is resumed."""
        write_file(self._end_marker, f"{reason}\n")

    def resume(self) -> None:
        """Removes the mark that the run has ended."""
        self._end_marker.unlink(missing_ok=True)

    @property
    def written(self) -> tuple[pathlib.Path, ...]:
        """Everything that a run writes, except for `experiment` and what exists only while it runs."""
        return (
            self.checkpoints,
            self.snapshots,
            self.replay(0).parent,
            self.path / POLICIES,
            self.tensorboard,
            self.videos,
            self.recorded,
            self.log("any").parent,
            self.metrics,
            self.counters,
            self.ratings,
            self.control,
            self.coordinator,
            self.network,
            self.environment,
            self.path / "loggers.json",
        )

    def create(self) -> None:
        """Makes the directories, which other users cannot read.

        Raises:
          CallboardError: a part of the directory is a symbolic link, so that the run would write elsewhere.
          OSError: they cannot be made.
        """
        self.path.mkdir(mode=_MODE, parents=True, exist_ok=True)
        below = {path.relative_to(self.path).parts[0] for path in (*self.written, self.experiment, self.temporary)}
        for name in sorted(below | _WRITTEN_TOO):
            for link in _links(self.path / name):
                raise CallboardError(
                    f"{link} is a symbolic link, and a run writes only into its own directory; remove the link, or "
                    "name another directory"
                )
        for directory in (self.checkpoints, self.log("any").parent):
            self.make(directory)
        for directory in (self.path, self.checkpoints):
            remove_drafts(directory)

    def make(self, part: pathlib.Path) -> None:
        """Makes a directory inside the run directory, which is not made again if a launcher has locked it.

        Raises:
          CallboardError: the run directory was renamed, deleted or replaced.
          OSError: the directory cannot be made.
        """
        self.check_same()
        if self.identity is None:
            self.path.mkdir(mode=_MODE, parents=True, exist_ok=True)
        whole = self.path if self.identity is None else self.identity.path
        above = [whole / parent for parent in part.relative_to(whole).parents if parent.name]
        for path in (*reversed(above), part):
            path.mkdir(mode=_MODE, exist_ok=True)


def _links(path: pathlib.Path) -> Iterator[str]:
    """Yields the symbolic links among a path and everything below it."""
    if path.is_symlink():
        yield str(path)
        return
    for folder, folders, files in os.walk(path):
        yield from (found for name in (*folders, *files) if os.path.islink(found := os.path.join(folder, name)))
