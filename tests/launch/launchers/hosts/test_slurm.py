"""The script that `callboard cluster sbatch` writes, as jobs of a real Slurm whose machines are network namespaces."""

import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys

import pytest
from host_network import HostNetwork, why_not

from callboard.cli.command import main
from callboard.runtime.deadlines import wait_until

pytestmark = pytest.mark.slow
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "munged")
SETTINGS = """\
ClusterName=try
SlurmctldHost=control({control})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MessageTimeout=60
SlurmdTimeout=600
KillWait=120
NodeName=n1 NodeAddr={n1} CPUs=8
NodeName=n2 NodeAddr={n2} CPUs=8
PartitionName=all Nodes=ALL Default=YES OverSubscribe=NO State=UP
"""


class Slurm:
    """A controller and two machines, `n1` and `n2`."""

    def __init__(self, folder, network):
        self._folder, self._network, self._daemons = folder, network, []
        for name in ("munge", "state", "spool-n1", "spool-n2"):
            (folder / name).mkdir(mode=0o755)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        names = [("localhost", "127.0.0.1"), *network.addresses.items()]
        (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names))
        (folder / "slurm.conf").write_text(SETTINGS.format(folder=folder, **network.addresses))
        # `ip netns exec` mounts a /sys without control groups, from which slurmd would find out their version.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        paths = [f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
        self._start("control", "munged", "--force", "--foreground", f"--socket={folder}/munge/socket", *paths)
        self._start("control", "slurmctld", "-D", "-f", folder / "slurm.conf")
        for name in ("n1", "n2"):
            self._start(name, "slurmd", "-D", "-N", name, "-f", folder / "slurm.conf")
        idle = lambda: self.run("sinfo", "--noheader", "--format=%T", check=False).stdout.split() == ["idle"]  # noqa: E731
        assert wait_until(idle, 60), self.said()

    def _command(self, host, command):
        """The command on a host: its network, its name and its table of names."""
        own = f'mount --bind {self._folder}/hosts /etc/hosts && hostname {host} && exec "$@"'
        return [*self._network.inside(host), "unshare", "--mount", "--uts", "sh", "-c", own, "sh", *map(str, command)]

    def _start(self, host, *command):
        with (self._folder / f"{command[0]}-{host}.out").open("w") as output:
            self._daemons.append(subprocess.Popen(self._command(host, command), stdout=output, stderr=output))

    def run(self, *command, check=True, **variables):
        environment = {**os.environ, "SLURM_CONF": f"{self._folder}/slurm.conf", **variables}
        options = dict(cwd=self._folder, env=environment, capture_output=True, text=True, timeout=120)
        done = subprocess.run(self._command("control", command), **options)
        assert not check or done.returncode == 0, done.stderr
        return done

    def submit(self, script, **variables):
        return int(self.run("sbatch", script, **variables).stdout.split()[-1])

    def job(self, number):
        """The state of a job and its exit code, such as `("RUNNING", "0:0")`."""
        text = self.run("scontrol", "show", "job", number).stdout
        return re.search(r"JobState=(\S+)", text)[1], re.search(r"ExitCode=(\S+)", text)[1]

    def output(self, number):
        path = self._folder / f"slurm-{number}.out"
        return path.read_text() if path.exists() else ""

    def ended(self, number, seconds):
        """Waits until a job has ended; its state and exit code."""
        over = lambda: self.job(number)[0] not in ("PENDING", "RUNNING", "COMPLETING")  # noqa: E731
        assert wait_until(over, seconds, 1.0), self.output(number) + self.said()
        return self.job(number)

    def said(self):
        return "".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in sorted(self._folder.glob("*.out")))

    def close(self):
        self._network.close()
        for daemon in self._daemons:
            daemon.wait(30)


@pytest.fixture
def slurm(tmp_path):
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"no Slurm here: {', '.join(missing)} not on PATH")
    if reason := why_not():
        pytest.skip(reason)
    network = HostNetwork(["n1", "n2", "control"])
    try:
        cluster = Slurm(tmp_path, network)
    except BaseException:
        network.close()
        raise
    yield cluster
    cluster.close()


def write_script(folder, *options):
    job = ["--nodes", "2", "--cpus", "2", "--output", str(folder / "job.sbatch")]
    assert main(["cluster", "sbatch", "--recipe", "impala-cartpole", *options, *job]) == 0
    return folder / "job.sbatch"


def test_a_host_that_fails_ends_the_job(slurm, tmp_path):
    """The command is one that fails on the second machine, and waits on the first until it is told to end."""
    script = write_script(tmp_path)
    command = tmp_path / "callboard"
    waits = "trap 'kill $!; echo told to end; exit 143' TERM; sleep 600 & wait"
    command.write_text(f"#!/bin/bash\n[[ $SLURMD_NODENAME == n2 ]] && {{ sleep 3; exit 2; }}\n{waits}\n")
    command.chmod(0o755)
    number = slurm.submit(script, CALLBOARD=str(command))
    assert slurm.ended(number, 120)[0] == "FAILED"
    assert "told to end" in slurm.output(number)


def test_a_job_that_is_told_to_end_continues_when_it_is_submitted_again(slurm, tmp_path):
    script = write_script(tmp_path, "--max-steps", "100000", "--stop-return", "null")
    run = tmp_path / "run"
    callboard = str(pathlib.Path(sys.executable).with_name("callboard"))
    own = {"CALLBOARD": callboard, "ACTORS_PER_HOST": "1", "RUN": str(run)}
    first = slurm.submit(script, **own)
    metrics = run / "metrics.jsonl"
    learned = lambda: metrics.exists() and "learner/" in metrics.read_text()  # noqa: E731
    assert wait_until(learned, 180), slurm.output(first)
    slurm.run("scancel", "--signal=TERM", first)
    assert slurm.ended(first, 180) == ("FAILED", "143:0"), slurm.output(first)
    second = slurm.submit(script, **own)
    assert slurm.ended(second, 300) == ("COMPLETED", "0:0"), slurm.output(second)
    assert "continues from learner step" in slurm.output(second)
    assert "reached max_steps" in slurm.output(second)
