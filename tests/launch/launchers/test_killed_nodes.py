"""`kill -9` of every kind of node: it comes back, the run continues, says so, and ends with its score."""

import os
import re
import shutil
import signal

import pytest
from agent_cases import RUN_CASES
from faults import stopped
from learned_windows import SHARDS, check_priorities, learned_windows, saves_again, settings, updated_windows
from slow_cases import checkered

from callboard.errors import rounded

pytestmark = pytest.mark.slow


NODES = [(RUN_CASES[0], node) for node in ("replay/0", "evaluator/0", "coordinator/0")]
# What an agent restores is compared for each of them in test_resume.py.
NODES += checkered(RUN_CASES, ("actor/0", "learner/0"))


@pytest.mark.parametrize("case, node", NODES, ids=lambda value: getattr(value, "name", value))
def test_the_run_survives_the_death_of_a_node(train, case, node):
    settings = ["--checkpoint-every", 2, "--max-steps", 1_000_000, "--max-learner-steps", "null"]
    stops = ["--stop-return", case.goal, "--evaluate-every", case.evaluate_every]
    run = train(*settings, *stops, recipe=case.recipe)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    run.wait_for_steps(3000)
    before, killed = run.rows()[-1], run.pid_of(node)
    os.kill(killed, signal.SIGKILL)
    run.wait_until(lambda: f"{node}: killed by SIGKILL; started again" in run.text(), timeout=10)
    assert run.wait(timeout=400) == 0, run.text()
    assert f"has reached {case.goal}" in run.end_line()
    assert run.pid_of(node) != killed
    after = run.rows()[-1]
    assert after["environment_steps"] > before["environment_steps"]
    for counter in ("environment_steps", "learner_steps"):
        counts = [row[counter] for row in run.rows()]
        assert counts == sorted(counts)
    if node == "learner/0":
        assert "learner/0: continues from learner step" in run.text()
    assert run.leftovers() == []


def test_temporary_directories_that_are_cleaned_harm_no_run(train):
    """That of the machine, and that of the run; nodes still start again."""
    run = train("--max-steps", 100_000_000, "--stop-return", 501, "--checkpoint-every", 2)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    for directory in (run.temporary, run.run_dir / "tmp"):
        shutil.rmtree(directory)
    for node in ("actor/0", "learner/0"):
        os.kill(run.pid_of(node), signal.SIGKILL)
        run.wait_until(lambda node=node: f"{node}: killed by SIGKILL; started again" in run.text(), timeout=30)
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text())
    before = run.rows()[-1]
    for counter in ("environment_steps", "learner_steps"):
        run.wait_for_steps(before[counter] + 10, counter)
    run.signal(signal.SIGTERM, "launcher")
    assert run.wait(timeout=100) == 143, run.text()
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []


def test_a_shard_may_be_away(train):
    """One of two shards dies: the learner samples from the other, and from both once it is back with what it kept."""
    settings = ["--actors", 2, "--replay-shards", 2, "--checkpoint-replay", "--replay-checkpoint-every", 3]
    run = train(*settings, "--max-steps", 1_000_000, "--stop-return", 501, recipe="apex-cartpole")

    def value(name):
        return next((row[name] for row in reversed(run.rows()) if name in row), 0)

    def grows(name, by, timeout):
        before = value(name)
        run.wait_until(lambda: value(name) >= before + by, timeout)

    run.wait_until(lambda: all(value(f"replay/sampled_{shard}") > 2000 for shard in (0, 1)))
    run.wait_until(lambda: list((run.run_dir / "replay" / "1").glob("checkpoints/*/DONE")))
    # Stopped before it is killed, so that the launcher does not bring it back at once.
    os.kill(run.pid_of("replay/1"), signal.SIGSTOP)
    stopped = value("replay/items_1")
    grows("learner_steps", 5, timeout=10)
    grows("learner_steps", 50, timeout=10)
    grows("replay/sampled_0", 1000, timeout=20)
    os.kill(run.pid_of("replay/1"), signal.SIGKILL)
    run.wait_until(lambda: "replay/1: continues with" in run.text(), timeout=30)
    kept = int(re.findall(r"replay/1: continues with ([\d,]+) items", run.text())[-1].replace(",", ""))
    assert 0 < kept <= stopped + 1000
    grows("replay/sampled_1", 1000, timeout=60)
    # An item is a block of 16 environments' windows, and shards with more of them are sampled, and filled, faster.
    grows("replay/items_1", 50, timeout=60)
    grows("replay/sampled_0", 1000, timeout=60)
    run.interrupt()
    assert run.wait(timeout=30) == 130, run.text()
    assert run.leftovers() == []


@pytest.mark.parametrize(
    "learners", [[], ["--learners", 2], ["--learner-devices", "CPU:0,CPU:1"]], ids=["one", "two", "two devices"]
)
def test_windows_of_whole_batches_are_their_own_when_replay_and_learner_die(start, tmp_path, learners):
    """Each is whole, under the key of its item, and has its own priority, which survives them and the run."""
    log, agent, run_dir = tmp_path / "learned.txt", "numbered:LoggedApex", tmp_path / "run"
    command = ["--run-dir", run_dir, *settings(log), "--actors", 2, "--replay-shards", 2, *learners]
    run = start("train", agent, *command)
    run.wait_for_steps(100, "learner_steps")
    run.wait_until(lambda: list((run_dir / "checkpoints").glob("0*")))
    learner = "learner/1" if "--learners" in learners else "learner/0"
    with stopped([run.pid_of(node) for node in {"learner/0", learner}]):
        # Nothing is sampled meanwhile, and then updated again.
        saves_again(run, run_dir, 1)
        before = updated_windows(run_dir, 1)
        os.kill(run.pid_of("replay/1"), signal.SIGKILL)
        run.wait_until(lambda: re.search(r"replay/1: continues with [\d,]+ items", run.text()), timeout=60)
        saves_again(run, run_dir, 1)
        assert before and updated_windows(run_dir, 1) == before
    run.wait_for_steps(run.rows()[-1]["learner_steps"] + 100, "learner_steps")
    os.kill(run.pid_of(learner), signal.SIGKILL)
    run.wait_until(lambda: f"{learner}: killed by SIGKILL; started again" in run.text(), timeout=60)
    run.wait_for_steps(run.rows()[-1]["learner_steps"] + 100, "learner_steps")
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.leftovers() == []
    origins = learned_windows(log)
    for shard in SHARDS:
        check_priorities(origins, run_dir, shard)

    before = {shard: updated_windows(run_dir, shard) for shard in SHARDS}
    steps = run.rows()[-1]["learner_steps"]
    resumed = start("train", agent, "--resume", *command)
    for shard in SHARDS:
        # As a rule before the learner has begun.
        saves_again(resumed, run_dir, shard)
        assert before[shard] <= updated_windows(run_dir, shard)
    resumed.wait_for_steps(steps + 100, "learner_steps")
    resumed.interrupt()
    assert resumed.wait(timeout=60) == 130, resumed.text()
    origins = learned_windows(log)
    for shard in SHARDS:
        check_priorities(origins, run_dir, shard)


def test_the_step_limit_holds_when_any_node_dies(train):
    settings = ["--max-steps", 400_000, "--stop-return", 501, "--evaluate-every", 1_000_000]
    run = train("--actors", 2, "--envs-per-actor", 16, *settings)
    for steps, node in ((30_000, "coordinator/0"), (120_000, "actor/1"), (240_000, "coordinator/0")):
        run.wait_for_steps(steps)
        os.kill(run.pid_of(node), signal.SIGKILL)
    assert run.wait() == 0, run.text()
    assert run.text().count("killed by SIGKILL; started again") == 3
    assert 400_000 <= run.rows()[-1]["environment_steps"] < 400_000 + 2 * 16
    (final,) = [row for row in run.rows() if "evaluator/final" in row]
    assert f"Score: {rounded(final['evaluator/return'])}" in run.end_line()
    assert run.leftovers() == []


def test_a_node_that_dies_again_and_again_ends_the_run(train):
    run = train("--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_for_steps(2000)
    for death in range(1, 5):
        pid = run.pid_of("actor/1")
        os.kill(pid, signal.SIGKILL)
        if death < 4:
            run.wait_until(lambda pid=pid: run.pid_of("actor/1") != pid, timeout=20)
    assert run.wait(timeout=60) == 1
    assert run.end_line() == "actor/1 failed: killed by SIGKILL, 4 times in a row"
    assert run.leftovers() == []
