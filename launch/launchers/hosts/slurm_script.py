"""A script for Slurm that trains on the machines of a job."""

import dataclasses
import json
import pathlib
import re
import shlex
from collections.abc import Sequence

from ....errors import CallboardError
from ....settings.setting_types import NonNegativeInt, PositiveInt, check_ranges

_TIME = re.compile(r"([0-9]+-)?[0-9]+(:[0-5][0-9]){0,2}")
_MOST_PORTS = 22_000


@dataclasses.dataclass(frozen=True)
class SlurmJob:
    """A job of Slurm.

    Attributes:
      nodes: machines: one with the learner, the others with actors.
      cpus: processors of each machine.
      gpus: GPUs of each machine.
      actors_per_host: actors on each machine but the first; null leaves two processors to other processes.
      time: the longest time of the job, as Slurm writes it, such as 04:00:00.
    """

    nodes: PositiveInt = 3
    cpus: PositiveInt = 16
    gpus: NonNegativeInt = 0
    actors_per_host: PositiveInt | None = None
    time: str = "04:00:00"

    @property
    def actors(self) -> int:
        """The number of actors on each machine but the first."""
        return max(1, self.cpus - 2) if self.actors_per_host is None else self.actors_per_host

    @property
    def ports(self) -> int:
        """The number of ports of each machine: one for each actor, and on the first some for the other nodes."""
        return -(-(self.actors + 10) // 100) * 100

    def cluster_file(self) -> str:
        """Returns a cluster file like that of the script, with names and addresses that stand for the job's."""
        names = [f"node-{number}" for number in range(self.nodes)]
        placed = dict.fromkeys(("learner", "replay", "evaluator"), names[:1])
        actors, hosts = dict.fromkeys(names[1:], self.actors), dict.fromkeys(names, "127.0.0.1")
        return json.dumps({"hosts": hosts, "ports": f"10000-{9999 + self.ports}", **placed, "actor": actors})

    def __post_init__(self) -> None:
        check_ranges(self)
        if not 2 <= self.nodes <= 10_000:
            raise CallboardError("--nodes must be 2 to 10,000: one with the learner, the others with actors")
        if self.ports > _MOST_PORTS:
            raise CallboardError(f"{self.actors:,} actors are too many per machine: lower --actors-per-host or --cpus")
        if not _TIME.fullmatch(self.time):
            raise CallboardError(f"--time must be a time as Slurm writes it, such as 04:00:00, not {self.time!r}")


def slurm_script(job: SlurmJob, words: Sequence[str], run_dir: str, command: str, writer: str, elastic: bool) -> str:
    """Returns the script, for `sbatch`.

    Args:
      job: what the job asks for.
      words: arguments of `callboard train`, without the run directory and the launcher.
      run_dir: the run directory, as a word of a shell.
      command: the command `callboard`, as a word of a shell.
      writer: what follows `callboard cluster sbatch` in the command that writes the script.
      elastic: whether actors may come and go, so that the run continues without a machine that has failed.
    """
    of_all = "one that fails ends the job, with a checkpoint, instead of letting the others wait."
    of_first = "if the first fails, the job ends, with a checkpoint; it continues without another one."
    values = {
        "nodes": job.nodes,
        "cpus": job.cpus,
        "time": job.time,
        "gpus": f"#SBATCH --gpus-per-node={job.gpus}\n" if job.gpus else "",
        "elastic": "# A machine that Slurm loses does not end the job.\n#SBATCH --no-kill\n" if elastic else "",
        "actors": job.actors,
        "ports": job.ports,
        "slots": _MOST_PORTS // job.ports,
        "last": job.ports - 1,
        "run": run_dir,
        "callboard": command,
        "arguments": shlex.join(words),
        "words": " ".join(writer.split()),
        "end": f"Nothing starts a host again: {of_first if elastic else of_all}",
        "unless": '[[ $SLURMD_NODENAME != "$first" ]] || ' if elastic else "",
    }
    script = pathlib.Path(__file__).with_suffix(".sbatch").read_text()
    return re.sub(f"@({'|'.join(values)})", lambda found: str(values[found[1]]), script)
