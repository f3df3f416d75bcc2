"""Recorded episodes that are also learned from as if they had been played for goals that were achieved later."""

import json

import pytest

from callboard.cli.command import main

pytest.importorskip("minari")

BITS = ["--recipe", "apex-bit-flipping", "--env-options.bits", "8", "--stop-return", "null", "--launcher", "inline"]


@pytest.mark.slow
def test_goals_are_reached_by_what_was_played_for_others(tmp_path):
    recording = ["--agent.epsilon", "0.9", "--agent.replay.hindsight.goals", "0", "--record-episodes", "true"]
    recording += ["--max-steps", "4000", "--evaluator", "false", "--run-dir", str(tmp_path / "recorded")]
    assert main(["train", *BITS, *recording]) == 0
    learning = ["--actors", "0", "--max-learner-steps", "3000", "--run-dir", str(tmp_path / "run")]
    assert main(["train", *BITS, "--dataset", str(tmp_path / "recorded/episodes/recorded-v0"), *learning]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    (*_, score) = [row["evaluator/return"] for row in rows if "evaluator/return" in row]
    # An episode in which the goal is not reached has -8, and one that is played without a mistake -3 in the mean.
    assert score >= -5
