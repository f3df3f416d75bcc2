"""The example of a run in pieces: a curriculum, an own metric, a warm start and a plot of three seeds."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_it_is_short():
    assert len((ROOT / "examples" / "open_run.py").read_text().splitlines()) < 60


@pytest.mark.score
@pytest.mark.slow
def test_every_seed_learns_and_the_warm_start_takes_fewer_steps(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.open_run", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 1.00 after") == 4
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    last = {}
    for run in (*(tmp_path / "three-seeds").iterdir(), tmp_path / "warm"):
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert any("episode/dials" in row for row in rows)
        last[run.name] = rows[-1]["environment_steps"]
    assert last["warm"] < last["1"]
