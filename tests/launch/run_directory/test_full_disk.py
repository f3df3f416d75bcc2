"""A disk that is full for a while pauses what is written, and neither ends the run nor sets it back."""

import json
import os
import subprocess

import pytest

from callboard.launch.run_directory.checkpoints import step_of

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path):
    directory = tmp_path / "disk"
    directory.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(directory)]
    if os.geteuid() or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(path):
    with path.open("wb", buffering=0) as file:
        for size in (2**16, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass


def test_a_full_disk_pauses_checkpoints_and_metrics(small_disk, start):
    directory = small_disk / "run"
    arguments = ["--run-dir", directory, "--checkpoint-every", 2, "--checkpoint-replay", "--replay-checkpoint-every", 2]
    run = start(
        *["train", "--recipe", "apex-cartpole", *arguments],
        *["--max-steps", 10_000_000, "--stop-return", 501],
    )
    run.wait_until(lambda: list((directory / "checkpoints").glob("0*")))
    run.wait_until(lambda: list((directory / "replay" / "0" / "checkpoints").glob("0*")))
    fill(small_disk / "filler")
    run.wait_until(lambda: "learner/0: no checkpoint could be written: No space left" in run.text(), timeout=120)
    run.wait_until(lambda: "no checkpoint of replay could be written: No space left" in run.text(), timeout=120)
    run.wait_until(lambda: "coordinator/0: metrics could not be written: No space left" in run.text(), timeout=120)
    assert not list(directory.rglob("draft-*"))
    before = max(step_of(path) for path in (directory / "checkpoints").glob("0*"))
    (small_disk / "filler").unlink()
    run.wait_until(lambda: "learner/0: checkpoints are written again" in run.text(), timeout=120)
    run.wait_until(lambda: "replay/0: checkpoints of replay are written again" in run.text(), timeout=90)
    run.wait_until(lambda: "coordinator/0: metrics are written again" in run.text(), timeout=120)
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    assert "started again" not in run.text() and "Traceback" not in run.text()
    assert max(step_of(path) for path in (directory / "checkpoints").glob("0*")) > before
    steps = [json.loads(line)["learner_steps"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)


def test_a_run_whose_last_checkpoint_does_not_fit_has_failed(small_disk, start):
    directory = small_disk / "run"
    run = start(
        *["train", "--recipe", "impala-cartpole", "--run-dir", directory],
        *["--max-steps", 10_000_000, "--stop-return", 501, "--checkpoint-every", 1000],
    )
    log = directory / "logs" / "learner-0.log"
    run.wait_until(lambda: log.exists() and "first learner step done" in log.read_text(), timeout=240)
    fill(small_disk / "filler")
    run.interrupt()
    assert run.wait(timeout=120) == 1, run.text()
    assert "learner/0 failed: the last checkpoint could not be written: No space left on device" in run.text()
