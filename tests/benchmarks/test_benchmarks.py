"""Every benchmark runs, small."""

import os
import subprocess
import sys

import pytest

from callboard.benchmarks.harness import BENCHMARKS
from callboard.benchmarks.results import load


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "peers"])
def test_a_quick_benchmark_gives_figures_of_both_sides(name, tmp_path):
    command = [sys.executable, "-m", "callboard.benchmarks.command", "run", name, "--quick", "--repeats", "2"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "results")],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    (result,) = load(tmp_path / "results" / f"{name}.json")
    assert result.quick and result.cases
    for case in result.cases:
        assert len(case.ours) == len(case.limit) == 2, case
        assert all(figure > 0 for figure in (*case.ours, *case.limit)), case
    assert not list(temporary.iterdir())
