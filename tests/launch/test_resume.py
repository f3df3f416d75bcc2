"""Continuing a run: counters, weights and replay from where they stood."""

import json
import re
import signal
import threading

import numpy as np
import pytest
from local_nodes import release

from callboard.agents.variables.weights import pack_weights
from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import read_experiment
from callboard.launch.launchers.inline import make_local_nodes
from callboard.launch.program import make_program
from callboard.launch.run import run as run_experiment
from callboard.launch.run_directory.checkpoints import step_of
from callboard.launch.run_directory.layout import RunDirectory

STEPS = 1500


pytestmark = pytest.mark.slow


def counters_of(checkpoint):
    sources = json.loads((checkpoint / "counters.json").read_text())
    return {name: sum(counts.get(name, 0) for counts in sources.values()) for name in ("environment_steps", "episodes")}


@pytest.fixture(scope="module")
def interrupted(command_run, case, tmp_path_factory):
    """A run that was stopped by Ctrl-C, as one fixture for all tests here."""
    directory = tmp_path_factory.mktemp("resume")
    arguments = ["train", "--recipe", case.recipe, "--run-dir", directory / "run", "--checkpoint-replay"]
    run = command_run([*arguments, "--max-steps", 10_000_000, "--stop-return", 501], directory)
    try:
        run.wait_for_steps(STEPS)
        run.wait_for_steps(3, "learner_steps")
        run.signal(signal.SIGINT, "all")
        assert run.wait(timeout=60) == 128 + signal.SIGINT, run.text()
        run.left = run.leftovers()
    finally:
        run.end()
    return run


def test_ctrl_c_ended_it_with_a_checkpoint_and_left_nothing(interrupted):
    assert interrupted.end_line().startswith("The run is over: stopped by SIGINT. ")
    assert "Traceback" not in interrupted.text()
    newest = max((interrupted.run_dir / "checkpoints").glob("0*"))
    assert step_of(newest) == interrupted.rows()[-1]["learner/step"]
    assert interrupted.left == []


def test_everything_continues(interrupted, start):
    checkpoint = max((interrupted.run_dir / "checkpoints").glob("0*"))
    before, steps, items = counters_of(checkpoint), step_of(checkpoint), interrupted.rows()[-1]["replay/items_0"]
    with np.load(checkpoint / "policy.npz") as file:
        saved = [file[name] for name in file.files if name.startswith("weight_")]

    # What the first actor is given, from the learner itself.
    experiment = read_experiment(interrupted.run_dir)
    program = make_program(Run(experiment, check_experiment(experiment).whole, RunDirectory(interrupted.run_dir)))
    said = []
    roles = make_local_nodes(program, threading.Event(), lambda name, kind, content: said.append((name, kind, content)))
    for name in ("coordinator/0", "replay/0", "learner/0"):
        roles[name].setup()
    learner, replay = roles["learner/0"], roles["replay/0"]
    version, given = learner.get_variables(None)
    assert version[1] == steps
    np.testing.assert_array_equal(given, pack_weights(saved))
    status = roles["coordinator/0"].status()
    assert {name: status[name] for name in before} == before
    assert status["learner_steps"] == steps

    (restored,) = replay.tables_at_start.values()
    agent_replay = experiment.agent.make_replay(learner._prepared.layout)
    learns_from_old = agent_replay.pace is None
    assert restored.current_size == (items if learns_from_old else 0)
    if restored.max_times_sampled == 0:
        # Items that may be sampled repeatedly are learned from at once: nothing is inserted here.
        assert items * agent_replay.together > 100
        assert ("replay/0", "message", f"continues with {items:,} items") in said
        for _ in range(3):
            learner.step()
        made = learner.collect().values["learner/step"] - steps
        given = getattr(experiment.agent, "updates_per_call", 1)
        if given is None:
            # Without new items, the ratio of updates to steps may allow fewer calls of so many.
            calls, rest = divmod(made, experiment.agent.updates_at_once(learner._prepared.layout))
            assert rest == 0 and 1 <= calls <= 3
        else:
            assert made == 3 * given
    release(roles)

    # Actors that fill a queue must need the learner before they have executed all steps.
    limit = before["environment_steps"] + (STEPS if learns_from_old else 10 * STEPS)
    limits = ["--max-steps", limit, "--max-learner-steps", "null"]
    resumed = start("train", "--resume", "--run-dir", interrupted.run_dir, *limits)
    assert resumed.wait() == 0, resumed.text()
    assert f"learner/0: continues from learner step {steps:,}" in resumed.text()
    latest = max((interrupted.run_dir / "checkpoints").glob("0*"))
    assert step_of(latest) > steps
    batches = experiment.actors * experiment.envs_per_actor
    assert limit <= counters_of(latest)["environment_steps"] < limit + batches
    assert resumed.leftovers() == []


def test_what_was_trained_can_be_evaluated(interrupted, capsys):
    arguments = ["evaluate", str(interrupted.run_dir), "--episodes", "4", "--checkpoint", "latest", "--json"]
    assert main(arguments) == 0
    returns = json.loads(capsys.readouterr().out)["returns"]
    assert len(returns) == 4 and np.isfinite(returns).all()


def test_what_does_not_continue_it_is_refused_and_the_run_is_left_as_it_was(interrupted, case):
    before = (interrupted.run_dir / "experiment.yaml").read_text()
    experiment = read_experiment(interrupted.run_dir, ["--agent.network.hidden-sizes", "[31]"])
    with pytest.raises(CallboardError, match=r"the network has changed .*kernel was \(.*\) and is now \("):
        run_experiment(experiment, "inline", resume=True)
    with pytest.raises(CallboardError, match="there is already a run in .*; continue it with resume=True"):
        run_experiment(read_experiment(interrupted.run_dir), "inline")
    for option, message in case.changed_replay.items():
        experiment = read_experiment(interrupted.run_dir, [option, "--actors=2"])
        with pytest.raises(CallboardError, match=message) as caught:
            run_experiment(experiment, "threads", resume=True)
        # Items of whole batches are fewer, in proportion: 100,000 transitions became 5,000.
        sizes = re.search(r"(\d+) instead of (\d+) items", str(caught.value))
        assert sizes is None or int(sizes[2]) == int(sizes[1]) // 20
    assert (interrupted.run_dir / "experiment.yaml").read_text() == before


def test_with_more_steps_the_learning_rate_continues_where_it_was_and_the_run_says_so(tmp_path, capsys):
    small = ["--agent.batch-size", "8", "--agent.minibatches", "2", "--agent.epochs", "1", "--agent.unroll-length", "8"]
    small += ["--agent.optimizer.learning-rate-decay", "true"]
    limits = ["--actors", "1", "--envs-per-actor", "8", "--evaluation-episodes", "1", "--evaluation-envs", "1"]
    run_dir = ["--run-dir", str(tmp_path / "run"), "--launcher", "inline"]
    assert main(["train", "ppo", "--env", "CartPole-v1", *small, *limits, *run_dir, "--max-steps", "3200"]) == 0
    assert "the learning rate continues" not in capsys.readouterr().out
    assert main(["train", "--resume", *run_dir, "--max-steps", "12800"]) == 0
    said = capsys.readouterr()
    assert "the learning rate continues where it was" in said.out + said.err
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = {row["learner/step"]: row["learner/learning_rate"] for row in rows if "learner/learning_rate" in row}
    steps = sorted(rates)
    # Between two learner steps of the 200, the rate changes by at most a fifteenth of its rise in 15 steps.
    for step, after in zip(steps, steps[1:], strict=False):
        assert abs(rates[after] - rates[step]) <= 2e-5 * (after - step) + 1e-6
    assert max(rate for step, rate in rates.items() if step > 60) > 1e-4 > rates[steps[-1]]
