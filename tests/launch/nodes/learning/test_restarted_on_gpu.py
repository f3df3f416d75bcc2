"""A learner that is killed leaves the memory of its GPU to the next one; here its process, on the processor."""

import os
import signal
import subprocess
import time

import pytest
from device_kinds import KINDS, require


def memory_of(kind, process):
    """MiB of GPU memory that a process has; of another kind of device 1, until the process has ended."""
    if kind != "GPU":
        return int(os.path.exists(f"/proc/{process}/exe"))
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
    return sum(int(line.split(",")[1]) for line in lines if int(line.split(",")[0]) == process)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inference", ["local", "central"])
def test_a_learner_that_is_killed_frees_its_memory_and_continues(train, kind, inference):
    require(kind)
    device = ["--learner-devices", f"{kind}:0", "--gpu-memory", 4, "--inference", inference]
    run = train(*device, "--checkpoint-every", 2, "--max-steps", 5_000_000, "--stop-return", 501)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    killed = run.pid_of("learner/0")
    # In a container, the driver may count processes by other numbers than it has.
    had = memory_of(kind, killed)
    os.kill(killed, signal.SIGKILL)
    end = time.monotonic() + 10
    while memory_of(kind, killed) and time.monotonic() < end:
        time.sleep(0.1)
    assert memory_of(kind, killed) == 0
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text(), timeout=120)
    begun = int(run.text().split("continues from learner step ")[1].split()[0].replace(",", ""))
    run.wait_for_steps(begun + 50, "learner_steps")
    assert run.pid_of("learner/0") != killed
    assert memory_of(kind, run.pid_of("learner/0")) <= max(4.5e9 / (1 << 20), 2 * had)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.leftovers() == []
