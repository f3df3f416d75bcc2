"""A run in which numbers become NaN or infinite ends with one line that names them, and keeps its last checkpoint."""

import dataclasses
import json
import pathlib
import re
import threading

import numpy as np
import pytest

from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.variables.finite_checks import check_saved_weights
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.metrics import MetricsWriter
from callboard.replay.reading import batch_reader
from callboard.runtime.deadlines import wait_until

ENVIRONMENTS = pathlib.Path(__file__).parents[1] / "environments"
ENV = "broken_environments:RewardsBecomeHuge"


class Silent:
    def status(self, status):
        pass

    def notify(self, text):
        pass


def test_metrics_that_are_not_finite_or_too_large_are_written(tmp_path):
    writer = MetricsWriter(RunDirectory(tmp_path))
    writer.write({"environment_steps": 1, "return": 1e39, "loss": np.nan, "steps": 2**70})
    writer.close()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {"environment_steps": 1, "return": 1e39, "loss": None, "steps": 2**70}


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["local", pytest.param("central", marks=pytest.mark.slow)])
def test_rewards_that_are_too_large_end_the_run_with_a_line_about_the_loss(inference, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ENVIRONMENTS)
    monkeypatch.setattr(batch_reader, "_SERVER_STOP_SECONDS", 0.1)
    others = set(threading.enumerate())
    experiment = Experiment(
        agent=Impala(batch_size=4, unroll_length=20),
        env=ENV,
        actors=1,
        envs_per_actor=4,
        inference=inference,
        evaluator=False,
        checkpoint_every=1e-3,
        max_steps=10_000,
        run_dir=tmp_path / "run",
    )
    outcome = run(experiment, "inline", Silent())
    assert (outcome.exit_code, outcome.failed_node) == (1, "learner/0")
    # The 200 steps of each environment and their 20 resets make eleven batches.
    kept = Checkpoints(RunDirectory(tmp_path / "run")).latest()
    assert outcome.error.startswith("the loss is NaN at learner step 12 (agent impala): ")
    assert outcome.error.endswith("; the last checkpoint is that of learner step 11")
    check_saved_weights(str(kept / "learner"))
    with np.load(kept / "policy.npz") as file:
        assert all(np.isfinite(file[name]).all() for name in file.files if name != "names")
    assert sorted(path.name for path in kept.parent.glob("*0*")) == ["000000000010", kept.name]
    # The process continues, without a thread that tries to reach the replay server.
    assert wait_until(lambda: not [one for one in set(threading.enumerate()) - others if "reader" in one.name], 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [["threads"], ["processes"], ["processes", "--inference", "central"]])
def test_so_it_does_on_other_launchers(train, settings):
    run = train(
        *("--env", ENV, "--actors", 1, "--envs-per-actor", 4, "--agent.batch-size", 4, "--evaluator", "false"),
        *("--checkpoint-every", 0.1, "--launcher", *settings),
        recipe=None,
    )
    assert run.wait() == 1
    line = run.end_line()
    assert "the loss is NaN at learner step" in line and "(agent impala): lower the learning rate" in line
    assert "Traceback" not in run.text() and "started again" not in run.text()
    for checkpoint in (run.run_dir / "checkpoints").glob("0*"):
        check_saved_weights(str(checkpoint / "learner"))
    assert run.leftovers() == []


@dataclasses.dataclass(frozen=True)
class LossIsNan(Apex):
    """Its loss, and so its priorities, are NaN."""

    def loss(self, *arguments, **named):
        output = super().loss(*arguments, **named)
        return output._replace(loss=output.loss * np.nan, priorities=output.priorities * np.nan)


@dataclasses.dataclass(frozen=True)
class PrioritiesAreNan(Apex):
    """Only its priorities are NaN."""

    def loss(self, *arguments, **named):
        output = super().loss(*arguments, **named)
        return output._replace(priorities=output.priorities * np.nan)


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "agent, words",
    [
        (LossIsNan, r"the loss is NaN at learner step \d+ "),
        (PrioritiesAreNan, "priorities are finite and at least 0, but"),
    ],
)
def test_priorities_that_are_nan_end_the_run_and_the_loss_is_named_if_it_is_the_cause(agent, words, tmp_path):
    agent = agent(batch_size=4, updates_per_call=1, replay={"min_size": 40}, network={"hidden_sizes": (4,)})
    experiment = Experiment(agent, "CartPole-v1", max_steps=5_000, evaluator=False, run_dir=tmp_path / "run")
    outcome = run(experiment, "inline", Silent())
    assert (outcome.exit_code, outcome.failed_node) == (1, "learner/0")
    assert re.match(words, outcome.error), outcome.error
