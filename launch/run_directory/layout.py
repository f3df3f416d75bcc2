"""The run directory: all that a run writes, and nothing outside it."""

import dataclasses
import pathlib
import re

from ...atomic_files import remove_drafts, write_file

CHECKPOINT_NAME = re.compile(r"(\d+)(?:\.(\d+))?")
"""Names of checkpoints: the learner step, and a number where the step was saved several times."""


def is_checkpoint_name(name: str) -> bool:
    """Whether a directory of this name in `checkpoints` is a checkpoint, and not a draft or a damaged one."""
    return CHECKPOINT_NAME.fullmatch(name) is not None


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Where a run keeps what.  Directories are made by `create`, not before."""

    path: pathlib.Path
    host: str = ""
    """The name of this machine, where several share the directory."""
    url: str = ""
    """Where the run is kept, if that is not `path`: see `storage`."""

    @property
    def experiment(self) -> pathlib.Path:
        """The YAML that is enough to run it again."""
        return self.path / "experiment.yaml"

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    @property
    def best_policy(self) -> pathlib.Path:
        """The policy with the best evaluation so far."""
        return self.checkpoints / "best.npz"

    @property
    def best_policy_before(self) -> pathlib.Path:
        """The policy that was the best before `best_policy`, in case that is damaged."""
        return self.checkpoints / "best-before.npz"

    @property
    def metrics(self) -> pathlib.Path:
        return self.path / "metrics.jsonl"

    @property
    def counters(self) -> pathlib.Path:
        """The counters of the whole run, as the coordinator last wrote them."""
        return self.path / "counters.json"

    @property
    def tensorboard(self) -> pathlib.Path:
        return self.path / "tensorboard"

    @property
    def videos(self) -> pathlib.Path:
        return self.path / "videos"

    @property
    def temporary(self) -> pathlib.Path:
        """Temporary files of this machine's nodes, there only while they run."""
        return self.path / f"tmp-{self.host}" if self.host else self.path / "tmp"

    def lock(self, has_checkpoints: bool = True) -> pathlib.Path:
        """The file whose lock a launcher holds; hosts that share the directory have one each, but for the first."""
        return self.path / ("lock" if has_checkpoints else f"lock-{self.host}")

    def replay(self, shard: int) -> pathlib.Path:
        """Where a replay shard keeps its checkpoints."""
        return self.path / "replay" / str(shard)

    def replay_shards(self) -> list[int]:
        """The shards that have a directory."""
        return sorted(int(path.name) for path in self.path.glob("replay/*") if path.name.isdigit())

    def log(self, node: str) -> pathlib.Path:
        """The log file of a node such as `actor/0`."""
        return self.path / "logs" / f"{node.replace('/', '-')}.log"

    def end_of_run(self) -> str:
        """Why a run over several hosts has ended for good; empty if it has not, or may go on."""
        try:
            return self._end_marker.read_text().strip()
        except OSError:
            return ""

    def write_end_of_run(self, reason: str) -> None:
        """Keeps other hosts from beginning the run again, until it is resumed."""
        write_file(self._end_marker, f"{reason}\n")

    def resume(self) -> None:
        """Lets the run go on."""
        self._end_marker.unlink(missing_ok=True)

    @property
    def _end_marker(self) -> pathlib.Path:
        return self.path / "ended"

    def create(self) -> None:
        """Makes the directories; others than this user may not look into a new one."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.log("any").parent.mkdir(exist_ok=True)
        for directory in (self.path, self.checkpoints):
            remove_drafts(directory)
