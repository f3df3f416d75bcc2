"""`kill -9` of every kind of node: it comes back, the run goes on, says so, and ends with its score."""

import os
import signal

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("node", ["actor/0", "learner/0", "replay/0", "evaluator/0", "coordinator/0"])
def test_the_run_survives_the_death_of_a_node(train, node):
    run = train("--checkpoint-every", 2, "--max-steps", 1_000_000)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")), timeout=60)
    run.wait_for_steps(20_000)
    before, killed = run.rows()[-1], run.pid_of(node)
    os.kill(killed, signal.SIGKILL)
    run.wait_until(lambda: f"{node}: killed by SIGKILL; started again" in run.text(), timeout=10)
    assert run.wait(timeout=170) == 0, run.text()
    assert "has reached 475" in run.text().splitlines()[-1]
    assert run.pid_of(node) != killed
    after = run.rows()[-1]
    assert after["environment_steps"] > before["environment_steps"]
    # The counters never go back by more than a checkpoint interval's worth of work: two seconds, and slack for a
    # busy machine.
    steps = [row["environment_steps"] for row in run.rows()]
    drops = [earlier - later for earlier, later in zip(steps, steps[1:], strict=False)]
    assert max(drops) <= 6 * max(row["actor/steps_per_second"] for row in run.rows())
    if node == "learner/0":
        assert "learner/0: goes on from learner step" in run.text()
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
    assert run.text().splitlines()[-1] == "actor/1 failed: killed by SIGKILL, 4 times in a row"
    assert run.leftovers() == []
