"""Learners over several devices and in several processes."""

import json
import os
import signal

import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.node_rules import learner_rules
from callboard.launch.run_directory.checkpoints import step_of


@pytest.mark.parametrize(
    "options, message",
    [
        (["--learner-devices", "4"], "this machine has 0 GPU"),
        (["--learner-devices", "CPU:0,CPU:1,CPU:2"], "cannot be shared by 3 learner devices: .* multiple of 3"),
        (["--learners", "2", "--learner-devices", "CPU:0,CPU:1"], "each of 2 learners has one device of the processor"),
        (["--learners", "0"], "learners must be a whole number from 1"),
        (["--jit-compile", "true", "--learners", "2"], "jit_compile is for one learner with one device, not for 2"),
        (["--gpu-memory", "0"], "gpu_memory must be a number from 0.1 to"),
        (["--learner-threads", "-1"], "learner_threads must be a whole number from 0 to 1,024, not -1"),
    ],
)
def test_learners_that_cannot_share_a_batch_are_refused(options, message):
    with pytest.raises(CallboardError, match=message):
        check_experiment(parse_experiment("impala", {}, ["--env", "CartPole-v1", "--agent.batch-size", "32", *options]))


def test_learners_have_as_many_threads_as_they_are_given():
    def threads(*options):
        experiment = parse_experiment("impala", {}, ["--env", "CartPole-v1", *options])
        return [learner_rules(experiment, rank).tensorflow_threads for rank in range(experiment.learners)]

    assert threads() == [0]
    assert threads("--learner-threads", "1") == [1]
    assert threads("--learner-threads", "3", "--learners", "2") == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--learner-devices", "CPU:0,CPU:1", "--launcher", "threads"],
        ["--learner-devices", "CPU:0,CPU:1"],
        ["--learners", 2],
    ],
)
def test_it_trains_and_leaves_nothing(train, options):
    run = train(*options, "--max-steps", 30_000, "--evaluator", "false", "--stop-return", "null")
    assert run.wait() == 0, run.text()
    last = run.rows()[-1]
    # A step of all learners counts once: its batch is 16 sequences of 10 timesteps, some of which are not acted on.
    assert last["learner_steps"] * 160 <= 1.1 * last["environment_steps"]
    assert last["learner_steps"] >= 50
    assert step_of(max((run.run_dir / "checkpoints").glob("0*"))) == last["learner_steps"]
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe, steps", [("impala-cartpole", 30_000), ("apex-cartpole", 5_000), ("sac-pendulum", 3_000)]
)
@pytest.mark.parametrize("options", [["--learner-devices", "CPU:0,CPU:1"], ["--learners", 2]])
def test_several_updates_in_a_call(train, recipe, steps, options):
    settings = ["--agent.updates-per-call", 4, "--max-steps", steps, "--evaluator", "false", "--stop-return", "null"]
    run = train(*options, *settings, recipe=recipe)
    assert run.wait() == 0, run.text()
    last = run.rows()[-1]
    assert last["learner_steps"] >= 50
    # Each of the four counts, and a call is never left in the middle.
    assert last["learner_steps"] % 4 == 0
    if "learner/dropped_priorities" in last:
        assert last["learner/dropped_priorities"] == 0
    assert step_of(max((run.run_dir / "checkpoints").glob("0*"))) == last["learner_steps"]
    assert run.leftovers() == []


@pytest.mark.slow
def test_every_agent_has_two_learners(train, case):
    run = train("--learners", 2, "--max-steps", 10_000_000, recipe=case.recipe)
    if not case.several_learners:
        assert run.wait() == 2 and "set learners to 1" in run.text()
        return
    run.wait_for_steps(3, "learner_steps")
    run.interrupt()
    assert run.wait() == 130, run.text()
    checkpoint = max((run.run_dir / "checkpoints").glob("0*"))
    last = run.rows()[-1]
    assert step_of(checkpoint) == last["learner_steps"] == last["learner/step"]
    # The actors continued for a moment after the learners had ended.
    for path in (checkpoint / "counters.json", run.run_dir / "counters.json"):
        sources = json.loads(path.read_text()).values()
        assert sum(counts.get("environment_steps", 0) for counts in sources) == last["environment_steps"]
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_all_learners_continue_from_the_checkpoint_when_one_dies(train, rank):
    run = train("--learners", 2, "--checkpoint-every", 2, "--max-steps", 5_000_000, "--stop-return", 501)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    run.wait_for_steps(5000)
    lives = [run.pid_of(f"learner/{number}") for number in (0, 1)]
    os.kill(lives[rank], signal.SIGKILL)
    run.wait_until(lambda: f"learner/{rank}: killed by SIGKILL; started again" in run.text(), timeout=10)
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text(), timeout=60)
    begun = int(run.text().split("continues from learner step ")[1].split()[0].replace(",", ""))
    assert begun > 0
    run.wait_for_steps(begun + 50, "learner_steps")
    assert all(run.pid_of(f"learner/{number}") != lives[number] for number in (0, 1))
    run.interrupt()
    assert run.wait(timeout=30) == 130, run.text()
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("learners", [1, 2])
def test_learner_steps_are_exact_after_a_learner_has_died(start, train, tmp_path, learners):
    first = ["--recipe", "impala-cartpole", "--run-dir", tmp_path / "source", "--launcher", "inline", "--no-evaluator"]
    source = start("train", *first, "--stop-return", "null", "--max-learner-steps", 2)
    assert source.wait() == 0, source.text()
    limits = ["--max-learner-steps", 500, "--checkpoint-every-steps", 50, "--stop-return", "null"]
    warm = ["--init-from", tmp_path / "source", "--freeze", "torso"]
    run = train("--learners", learners, "--keep-checkpoints", 3, "--max-steps", 10_000_000, *limits, *warm)
    run.wait_for_steps(100, "learner_steps")
    # The restarted learner has its own checkpoint, and needs the other run no more.
    (tmp_path / "source").rename(tmp_path / "elsewhere")
    os.kill(run.pid_of("learner/0"), signal.SIGKILL)
    assert run.wait() == 0, run.text()
    assert "learner/0: continues from learner step" in run.text()
    assert run.text().count("begins with") == 1
    assert "reached max_learner_steps (500 learner steps)" in run.end_line()
    kept = {step_of(path) for path in (run.run_dir / "checkpoints").glob("0*")}
    assert kept == {400, 450, 500}
    assert run.leftovers() == []
