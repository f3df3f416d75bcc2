"""The memory task shows the right action once, and rewards it at the end."""

import json
import pathlib
import statistics
import subprocess
import sys

import numpy as np
import pytest

from callboard import environments

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMORY = "callboard.environments.memory_task:Memory"


@pytest.mark.parametrize("delay", [1, 20])
def test_the_last_action_pays_where_it_is_what_the_first_observation_showed(delay):
    batch = environments.make(MEMORY, 8, list(range(8)), {"delay": delay})
    timestep = batch.reset()
    cues = timestep.observation[:, 0]
    assert set(cues.tolist()) == {-1.0, 1.0}
    right = (cues > 0).astype(np.int32)
    # Environments 0 to 3 get the right action at the end, the others the wrong one; earlier actions have no effect.
    answers = np.where(np.arange(8) < 4, right, 1 - right)
    for time in range(1, delay + 1):
        timestep = batch.step(np.full(8, time % 2, np.int32))
        # The last observation is the same for both cues.
        np.testing.assert_array_equal(timestep.observation, np.tile(np.float32([0, time / delay]), (8, 1)))
        assert not timestep.last.any() and not timestep.reward.any() and timestep.discount.all()
    timestep = batch.step(answers)
    assert timestep.reward.tolist() == [1.0] * 4 + [0.0] * 4
    assert timestep.last.all() and not timestep.discount.any() and not timestep.observation[:, 0].any()
    assert batch.step(answers).first.all()


def test_the_cue_depends_on_the_seed_alone_and_is_even():
    def cues(seed):
        batch = environments.make(MEMORY, 1, [seed], {"delay": 1})
        values = [batch.reset().observation[0, 0]]
        for _ in range(400):
            values += [batch.step(np.zeros(1, np.int32)).observation[0, 0] for _ in range(3)][-1:]
        return np.array(values)

    assert set(cues(5)) == {-1.0, 1.0} and np.array_equal(cues(5), cues(5)) and not np.array_equal(cues(5), cues(6))
    assert abs(np.mean(cues(5))) < 0.2


def test_a_delay_of_nothing_is_refused():
    with pytest.raises(ValueError, match="delay must be at least 1, not 0"):
        environments.make(MEMORY, 1, [1], {"delay": 0})


def train(recipe, seed, run_dir):
    """Trains with the command, and returns the mean returns of its evaluations."""
    options = ["--recipe", recipe, "--seed", str(seed), "--run-dir", str(run_dir)]
    command = [sys.executable, "-m", "callboard.cli.command", "train", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row["evaluator/return"] for row in rows if "evaluator/return" in row]


@pytest.mark.score
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_r2d2_remembers(tmp_path, seed):
    assert train("r2d2-memory", seed, tmp_path / "run")[-1] >= 0.95


@pytest.mark.score
@pytest.mark.slow
def test_apex_cannot_remember(tmp_path):
    returns = train("apex-memory", 1, tmp_path / "run")
    # The standard deviation of a mean of 100 episodes is 0.05, and there are ten such means.
    assert max(returns) < 0.75
    assert statistics.fmean(returns) == pytest.approx(0.5, abs=0.1)
