"""The layout of the run directory, which contains everything that a run writes."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...atomic_files import remove_drafts, write_file

Entry = TypeVar("Entry")
CHECKPOINT_NAME = re.compile(r"(\d+)(?:\.(\d+))?")
"""Names of checkpoints: the learner step, and a number if the step was saved several times."""
_SNAPSHOT_NAME = re.compile(r"(.+)-(\d+)\.npz")

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

    def of_policy(self, name: str) -> "RunDirectory":
        """Returns the directory of one of several policies of the run."""
        below = f"{POLICIES}/{name}"
        return RunDirectory(self.path / below, self.host, f"{self.url}/{below}" if self.url else "")

    @property
    def policies(self) -> dict[str, "RunDirectory"]:
        """The directories of the run's policies, by name; empty for a run of one policy."""
        names = sorted(path.name for path in self.path.glob(f"{POLICIES}/*") if path.is_dir())
        return {name: self.of_policy(name) for name in names}

    @property
    def experiment(self) -> pathlib.Path:
        """The YAML file from which the run can be repeated."""
        return self.path / "experiment.yaml"

    @property
    def environment(self) -> pathlib.Path:
        """The spec of the run's environment as JSON, for policies that act without it."""
        return self.path / "environment.json"

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    @property
    def best_policy(self) -> pathlib.Path:
        """The policy with the best evaluation so far."""
        return self.checkpoints / "best.npz"

    @property
    def best_policy_before(self) -> pathlib.Path:
        """The best policy before `best_policy`, in case that file is damaged."""
        return self.checkpoints / "best-before.npz"

    @property
    def snapshots(self) -> pathlib.Path:
        """Earlier weights of a policy, with which others play against it."""
        return self.path / "snapshots"

    def snapshot(self, name: str, number: int) -> pathlib.Path:
        """The file of a snapshot; `name` is the policy that plays with it."""
        return self.snapshots / f"{name}-{number}.npz"

    def snapshots_of(self, name: str) -> dict[int, pathlib.Path]:
        """The files of the snapshots with which the policy `name` plays, by number, the oldest first."""
        found = [(_SNAPSHOT_NAME.fullmatch(path.name), path) for path in self.snapshots.glob("*.npz")]
        return dict(sorted((int(match[2]), path) for match, path in found if match and match[1] == name))

    @property
    def metrics(self) -> pathlib.Path:
        return self.path / "metrics.jsonl"

    @property
    def counters(self) -> pathlib.Path:
        """The counters of the whole run, as last written by the coordinator."""
        return self.path / "counters.json"

    @property
    def ratings(self) -> pathlib.Path:
        """The ratings of policies that play against each other."""
        return self.path / "ratings.json"

    @property
    def control(self) -> pathlib.Path:
        """What has been changed while the run was in progress: the environments' task, and settings of the agent."""
        return self.path / "control.json"

    @property
    def coordinator(self) -> pathlib.Path:
        """Where the coordinator listens; exists only while the run is running."""
        return self.path / "coordinator.json"

    @property
    def socket(self) -> pathlib.Path:
        """The socket of a run whose nodes share a thread; exists only while the run is running."""
        return self.path / "socket"

    @property
    def network(self) -> pathlib.Path:
        """The table of the networks' layers."""
        return self.path / "network.txt"

    @property
    def tensorboard(self) -> pathlib.Path:
        return self.path / "tensorboard"

    @property
    def videos(self) -> pathlib.Path:
        return self.path / "videos"

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
            return self._end_marker.read_text().strip()
        except OSError:
            return ""

    def write_end_of_run(self, reason: str) -> None:
        """Marks the run as ended, so that other hosts do not start it again before it is resumed."""
        write_file(self._end_marker, f"{reason}\n")

    def resume(self) -> None:
        """Removes the mark that the run has ended."""
        self._end_marker.unlink(missing_ok=True)

    @property
    def _end_marker(self) -> pathlib.Path:
        return self.path / "ended"

    def create(self) -> None:
        """Makes the directories; a new run directory is not readable by other users."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.log("any").parent.mkdir(exist_ok=True)
        for directory in (self.path, self.checkpoints):
            remove_drafts(directory)
