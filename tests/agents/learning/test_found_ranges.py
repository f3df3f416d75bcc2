"""Agents with a range of values that they find learn as much as with the range that is right."""

import json
from typing import Any

import pytest

from callboard.cli.command import main

pytestmark = pytest.mark.slow

STEPS = 6000
SMALL = {
    "network.hidden-sizes": "[64, 64]",
    "batch-size": "64",
    "replay.samples-per-insert": "64",
    "actor-optimizer.learning-rate": "3e-4",
    "critic-optimizer.learning-rate": "3e-4",
}


def score(run_dir: Any, seed: int, ends: dict[str, str]) -> float:
    """The mean return of the final policy without noise."""
    settings = [text for name, value in (SMALL | ends).items() for text in (f"--agent.{name}", value)]
    where = ["--launcher", "inline", "--seed", str(seed), "--run-dir", str(run_dir)]
    steps = ["--max-steps", str(STEPS), "--evaluate-every", str(STEPS), "--evaluation-episodes", "20"]
    assert main(["train", "d4pg", "--env", "held_point:HeldPoint", *steps, *where, *settings]) == 0
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return float([row["evaluator/return"] for row in rows if "evaluator/return" in row][-1])


def test_values_that_continue_after_a_short_time_limit(tmp_path):
    seed = 2
    # The sum of rewards is at most 40, and values go to 100.
    given = score(tmp_path / "given", seed, {"value-min": "0", "value-max": "100"})
    assert score(tmp_path / "found", seed, {}) > given - 2.5
