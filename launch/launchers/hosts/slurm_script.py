"""A script for Slurm that trains on the machines of a job."""

import dataclasses
import re
import shlex
from collections.abc import Sequence

from ....errors import CallboardError
from ....settings.setting_types import NonNegativeInt, PositiveInt, check_ranges

_TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")
_SCRIPT = """\
#!/usr/bin/env bash
# One learner machine and as many actor machines as the job has further nodes:
#
#   sbatch slurm.sbatch
#
# Written by: callboard cluster sbatch @words
# Submit it once more with the same RUN, and the run continues where it stopped.
#SBATCH --job-name=callboard
#SBATCH --nodes=@nodes
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=@cpus
@gpus#SBATCH --time=@time
# All machines are signaled to end two minutes before the time is over: enough for a checkpoint.
#SBATCH --signal=TERM@120
set -euo pipefail
RUN=${RUN:-@run}
ACTORS_PER_HOST=${ACTORS_PER_HOST:-@actors}
CALLBOARD=${CALLBOARD:-@callboard}

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${hosts[0]}
# Below the ports that systems give to connections, and others than those of most other jobs on the same machine.
port=$((10000 + SLURM_JOB_ID % 220 * 100))
cluster=$SLURM_SUBMIT_DIR/cluster-$SLURM_JOB_ID.yaml
{
    echo "hosts:"
    for host in "${hosts[@]}"; do echo "  $host: $host"; done
    echo "ports: $port-$((port + 99))"
    echo "learner: [$first]"
    echo "replay: [$first]"
    echo "evaluator: [$first]"
    echo "actor:"
    for host in "${hosts[@]:1}"; do echo "  $host: $ACTORS_PER_HOST"; done
} > "$cluster"

export CALLBOARD RUN cluster
# srun does not take --cpus-per-task over from the job since SLURM 22.05.
srun --kill-on-bad-exit=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c '
    trap : TERM
    code=0
    "$CALLBOARD" train "$@" \\
        --launcher hosts --cluster "$cluster" --host "$SLURMD_NODENAME" --run-dir "$RUN" || code=$?
    # Nothing starts a host again: one that fails ends the job, with a checkpoint, instead of letting the others wait.
    case $code in 0 | 130 | 143) ;; *) scancel --signal=TERM "$SLURM_JOB_ID" ;; esac
    exit $code' callboard @arguments
"""


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

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.nodes < 2:
            raise CallboardError("--nodes must be at least 2: one with the learner, and one with actors")
        if not _TIME.fullmatch(self.time):
            raise CallboardError(f"--time must be a time as Slurm writes it, such as 04:00:00, not {self.time!r}")


def slurm_script(job: SlurmJob, words: Sequence[str], run_dir: str, command: str) -> str:
    """Returns the script, for `sbatch`.

    Args:
      job: what the job asks for.
      words: arguments of `callboard train`, without the run directory and the launcher.
      run_dir: the run directory, as a word of a shell.
      command: the command `callboard`, as a word of a shell.
    """
    actors = max(1, job.cpus - 2) if job.actors_per_host is None else job.actors_per_host
    values = {
        "nodes": job.nodes,
        "cpus": job.cpus,
        "time": job.time,
        "gpus": f"#SBATCH --gpus-per-node={job.gpus}\n" if job.gpus else "",
        "actors": actors,
        "run": run_dir,
        "callboard": command,
        "arguments": shlex.join(words),
        "words": " ".join(shlex.join(words).split()),
    }
    return re.sub(f"@({'|'.join(values)})\\b", lambda found: str(values[found[1]]), _SCRIPT)
