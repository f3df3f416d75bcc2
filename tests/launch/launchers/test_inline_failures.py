"""A node of the inline launcher that fails: what was learned before is saved, as with the other launchers."""

import json

import gymnasium
import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import Checkpoints, step_of
from callboard.launch.run_directory.layout import RunDirectory


class FailsLater(gymnasium.Wrapper):
    """CartPole that raises in its 150th step."""

    def __init__(self, error):
        super().__init__(gymnasium.make("CartPole-v1"))
        self._error = error
        self._steps = 0

    def step(self, action):
        self._steps += 1
        if self._steps == 150:
            raise self._error
        return super().step(action)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom"),
        pytest.param(SystemExit(0), marks=pytest.mark.slow),
        pytest.param(KeyboardInterrupt(), marks=pytest.mark.slow),
    ],
)
def test_an_environment_that_raises_loses_nothing_that_was_learned(tmp_path, error):
    experiment = Experiment(
        Impala(batch_size=2, unroll_length=5),
        lambda: FailsLater(error),
        run_dir=tmp_path / "run",
        actors=1,
        envs_per_actor=2,
        evaluator=False,
        checkpoint_every=1000.0,
    )
    outcome = run(experiment, "inline")
    directory = RunDirectory(tmp_path / "run")
    assert (outcome.exit_code, outcome.failed_node) == (1, "actor/0")
    assert type(error).__name__ in outcome.error
    last = json.loads(directory.metrics.read_text().splitlines()[-1])
    # 149 timesteps of two environments, without the resets.
    assert 2 * 149 - 40 <= last["environment_steps"] <= 2 * 149
    newest = Checkpoints(directory).latest()
    assert step_of(newest) == last["learner/step"] > 0
    assert not directory.coordinator.exists() and not directory.socket.exists()
