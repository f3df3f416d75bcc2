"""A mistake in a user's own code ends the run at once, with its traceback, under every launcher."""

import pytest
from own_mistakes import MESSAGE, AtEvaluation, AtResult, AtStart, Mistaken

from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.registry import LAUNCHERS
from callboard.launch.run import run
from callboard.settings.nested_settings import from_values

SMALL = {"unroll_length": 5, "batch_size": 8, "network.hidden_sizes": (4,)}
MISTAKES = {
    "loss": ({"mistake": "loss"}, (), "learner/0"),
    "computed loss": ({"mistake": "computed loss"}, (), "learner/0"),
    "policy": ({"mistake": "policy"}, (), ""),
    "replay": ({"mistake": "replay"}, (), "actor/0"),
    "torso": ({"network.torso": "own_mistakes:torso"}, (), ""),
    "callback at the start": ({}, (AtStart(),), ""),
    "callback at an evaluation": ({}, (AtEvaluation(),), "evaluator/0"),
    "callback at a result": ({}, (AtResult(),), "coordinator/0"),
}


class Said:
    """A monitor that keeps what it is notified of."""

    def __init__(self):
        self.lines = []

    def status(self, status):
        pass

    def notify(self, text):
        self.lines.append(text)

    def close(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("where", MISTAKES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_mistake_ends_the_run_at_once(tmp_path, launcher, where, launcher_named):
    settings, callbacks, node = MISTAKES[where]
    experiment = Experiment(
        from_values(Mistaken, {**SMALL, **settings}),
        "CartPole-v1",
        run_dir=tmp_path / "run",
        callbacks=callbacks,
        actors=1,
        envs_per_actor=4,
        evaluator=where == "callback at an evaluation",
        evaluate_every=1000,
        evaluation_episodes=2,
        evaluation_envs=2,
        max_steps=10_000_000,
        max_seconds=120,
    )
    said = Said()
    outcome = run(experiment, launcher_named(launcher, actors=1), said)
    assert outcome.exit_code == 1 and MESSAGE in outcome.error, outcome
    assert "own_mistakes.py" in outcome.error and "Traceback" in outcome.error
    assert outcome.failed_node == node or not node
    assert not [line for line in said.lines if "started again" in line]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("launcher", ["threads", "processes"])
@pytest.mark.parametrize("in_evaluation", [False, True])
def test_a_mistake_at_the_same_step_again_ends_the_run(tmp_path, launcher, in_evaluation, launcher_named):
    experiment = Experiment(
        from_values(Mistaken, SMALL),
        "own_mistakes:AtStep",
        {"at": 300, "in_evaluation": in_evaluation},
        run_dir=tmp_path / "run",
        actors=1,
        envs_per_actor=1,
        evaluator=in_evaluation,
        evaluate_every=1000,
        evaluation_episodes=100,
        evaluation_envs=1,
        max_steps=10_000_000,
        max_seconds=120,
    )
    said = Said()
    outcome = run(experiment, launcher_named(launcher, actors=1), said)
    assert (outcome.exit_code, outcome.failed_node) == (1, "evaluator/0" if in_evaluation else "actor/0")
    assert MESSAGE in outcome.error
    # The evaluator has evaluated nothing before.
    assert len([line for line in said.lines if "started again" in line]) == (not in_evaluation), said.lines
