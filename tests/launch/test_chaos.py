"""Runs in which two things go wrong at once, again and again, chosen by a seed.

A test lasts for `CALLBOARD_CHAOS_SECONDS` (120 by default) with the seed `CALLBOARD_CHAOS_SEED` (0 by default).
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from callboard.manifest import damage

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("CALLBOARD_CHAOS_SECONDS", "120"))
SEED = int(os.environ.get("CALLBOARD_CHAOS_SEED", "0"))
NODE_TIMEOUT = 12
NODES = ("actor/0", "actor/1", "learner/0", "replay/0", "coordinator/0", "evaluator/0")


@pytest.fixture
def small_disk(tmp_path):
    """The run directory on a disk of its own, which is quickly full."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", path]).returncode:
        pytest.skip("a disk of its own needs root")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


class Chaos:
    """Faults of a run, chosen by a seed, and what must hold meanwhile."""

    def __init__(self, run, seed, faults):
        self.run = run
        self.random = random.Random(seed)
        self.faults = faults
        self.done = []
        self._counted = {}

    def strike(self):
        """Does two faults at once."""
        pair = [self.random.choice(self.faults) for _ in range(2)]
        self.done.append("+".join(f"{fault.__name__}{target}" for fault, target in pair))
        with contextlib.ExitStack() as stack:
            for fault, target in pair:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError, IndexError):
                    stack.enter_context(fault(self.run, target))
            time.sleep(self.random.uniform(1.0, 6.0))

    def check(self):
        """Counters never decrease in the metrics, and every checkpoint is intact."""
        assert self.run.process.poll() is None, self.run.text()
        before = {}
        for row in self.run.rows():
            for name in ("environment_steps", "learner_steps"):
                assert row[name] >= before.get(name, 0), (name, self.done)
                before[name] = row[name]
        for name, count in self._counted.items():
            assert before.get(name, 0) >= count, (name, self.done)
        self._counted = before
        for checkpoint in self.run.run_dir.glob("checkpoints/[0-9]*"):
            wrong = damage(checkpoint)
            assert not wrong or not checkpoint.exists(), (wrong, self.done)


@contextlib.contextmanager
def kill(run, node):
    os.kill(run.pid_of(node), signal.SIGKILL)
    yield


@contextlib.contextmanager
def stop(run, node):
    """A node that hangs; the supervisor kills it if that lasts."""
    pid = run.pid_of(node)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def fill(run, _):
    """A full disk."""
    path = run.run_dir / "filler"
    with contextlib.suppress(OSError), path.open("wb") as file:
        while True:
            file.write(bytes(2**16))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def freeze(run, _):
    """All of the run stands still, as on a machine that sleeps."""
    run.look()
    pids = [run.process.pid, *run.seen]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


FAULTS = {
    "processes": [*((kill, node) for node in NODES), *((stop, node) for node in NODES), (fill, ""), (freeze, "")],
    "threads": [(fill, ""), (freeze, "")],
}


@pytest.mark.parametrize("launcher", FAULTS)
def test_a_run_survives_two_faults_at_once(launcher, small_disk, train):
    run = train(
        *("--launcher", launcher, "--checkpoint-every", "2", "--evaluate-every", "20000"),
        *("--max-steps", "100000000", "--stop-return", "null", "--node-timeout", str(NODE_TIMEOUT)),
    )
    run.wait_for_steps(1, "learner_steps")
    chaos = Chaos(run, SEED, FAULTS[launcher])
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        chaos.strike()
        chaos.check()
        # No node dies so often that the run is given up, and what was struck continues.
        steps = run.rows()[-1]["environment_steps"]
        run.wait_for_steps(steps + 1)
        time.sleep(chaos.random.uniform(8.0, 14.0))
    steps = run.rows()[-1]["learner_steps"]
    run.wait_for_steps(steps + 1, "learner_steps")
    run.signal(signal.SIGINT, "launcher")
    assert run.wait(120) == 130, run.text()
    counts = json.loads((run.run_dir / "counters.json").read_text())
    total = sum(of_source.get("environment_steps", 0) for of_source in counts.values())
    assert total == run.rows()[-1]["environment_steps"]
    assert any(not damage(path) for path in run.run_dir.glob("checkpoints/[0-9]*"))
    assert run.leftovers() == []
    print(f"{launcher}, seed {SEED}: {len(chaos.done)} pairs: {' '.join(chaos.done)}")
