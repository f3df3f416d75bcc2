"""Nodes that hang: they are named on the screen, and treated like those that died."""

import os
import re
import signal
import time

import pytest

from callboard.launch.run_directory.checkpoints import step_of

pytestmark = pytest.mark.slow

# Replay is kept, so that a stopped replay server is seen to come back with what it held.
SETTINGS = ["--stop-return", "null", "--checkpoint-every", 3, "--checkpoint-replay", "--replay-checkpoint-every", 3]


def is_monotone(run):
    return all(
        counts == sorted(counts)
        for counts in ([row[name] for row in run.rows()] for name in ("environment_steps", "learner_steps"))
    )


@pytest.mark.parametrize("node", ["actor/0", "learner/0", "replay/0", "coordinator/0", "evaluator/0"])
def test_a_stopped_node_is_named_and_replaced(train, node):
    run = train("--max-steps", 100_000_000, "--node-timeout", 12, "--evaluate-every", 100_000_000, *SETTINGS)
    run.wait_for_steps(5000)
    run.wait_for_steps(5, "learner_steps")
    stopped = run.pid_of(node)
    os.kill(stopped, signal.SIGSTOP)
    begun = time.monotonic()
    run.wait_until(lambda: f"{node}: no heartbeat for" in run.text(), timeout=60)
    named = time.monotonic() - begun
    run.wait_until(lambda: f"{node}: killed by SIGKILL; started again (1 of 3" in run.text(), timeout=60)
    run.wait_until(lambda: run.pid_of(node) != stopped, timeout=60)
    rows = len(run.rows())
    run.wait_until(lambda: len(run.rows()) > rows, timeout=60)
    before = run.rows()[-1]
    run.wait_until(
        lambda: all(run.rows()[-1][name] > before[name] for name in ("environment_steps", "learner_steps")), timeout=120
    )
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    assert is_monotone(run)
    # No other node was taken for one that hangs.
    assert set(re.findall(r"^(\S+): .* and is killed", run.text(), re.M)) == {node}
    assert run.leftovers() == []
    assert named < 60


@pytest.mark.parametrize("node", ["actor/0", "learner/0", "replay/0", "coordinator/0"])
def test_a_stop_does_not_wait_for_a_stopped_node(train, node):
    """Replay would have ten minutes."""
    run = train("--max-steps", 100_000_000, *SETTINGS)
    run.wait_for_steps(5000)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    os.kill(run.pid_of(node), signal.SIGSTOP)
    time.sleep(1)
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    assert re.search(
        rf"^{node}: no heartbeat for \d+ s while the run ends, and is killed|{node}: did not end", run.text(), re.M
    )
    if node != "learner/0":
        assert step_of(max((run.run_dir / "checkpoints").glob("0*"))) >= run.rows()[-1]["learner_steps"] - 1
    assert run.leftovers() == []


def test_the_limit_holds_without_a_coordinator(train):
    """Actors pause a few seconds after the coordinator has last answered, and its counters are not lost."""
    limit = 200_000
    run = train("--max-steps", limit, "--node-timeout", 20, "--evaluator", "false", *SETTINGS)
    run.wait_for_steps(20_000)
    os.kill(run.pid_of("coordinator/0"), signal.SIGSTOP)
    assert run.wait(timeout=300) == 0, run.text()
    assert "coordinator/0: no heartbeat for" in run.text()
    assert limit <= run.rows()[-1]["environment_steps"] <= limit + 2 * 16
    assert is_monotone(run)


def test_all_processes_are_stopped_for_a_while(train):
    """As where a machine sleeps: no node is taken for one that hangs."""
    run = train("--max-steps", 100_000_000, "--node-timeout", 8, *SETTINGS)
    run.wait_for_steps(5000)
    run.look()
    alive = [process for process in run.seen.values() if process.is_running()]
    for process in [run.process, *alive]:
        os.kill(process.pid, signal.SIGSTOP)
    time.sleep(15)
    for process in [*alive, run.process]:
        os.kill(process.pid, signal.SIGCONT)
    before = run.rows()[-1]["environment_steps"]
    run.wait_for_steps(before + 10_000)
    assert "is killed" not in run.text()
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()


@pytest.mark.parametrize("launcher", ["processes", "threads", "inline"])
def test_an_environment_that_never_returns(train, launcher):
    settings = ["--env", "broken_environments:HangsInStep", "--launcher", launcher, "--evaluator", "false"]
    run = train(*settings, "--node-timeout", 12, "--max-steps", 100_000_000, "--stop-return", "null")
    run.wait_until(lambda: (run.directory / "hung").exists())
    run.wait_until(lambda: re.search(r"actor/\d: in environment step for", run.text()), timeout=60)
    if launcher in ("threads", "inline"):
        assert run.wait(timeout=60) == 1, run.text()
        thread = {"threads": "a thread", "inline": "the run's only thread"}[launcher]
        assert re.fullmatch(
            rf"actor/\d failed: in environment step for \d+ s, and a node in {thread} cannot be killed; use "
            "--launcher processes",
            run.end_line(),
        )
    else:
        run.wait_until(
            lambda: re.search(r"actor/\d: killed by SIGKILL; started again \(1 of 3", run.text()), timeout=60
        )
        steps = run.rows()[-1]["environment_steps"]
        run.wait_for_steps(steps + 10_000)
        run.interrupt()
        assert run.wait(timeout=60) == 130, run.text()
    assert run.leftovers() == []


def test_a_stop_does_not_wait_for_an_environment_that_hangs(train):
    settings = ["--env", "broken_environments:HangsInStep", "--evaluator", "false", "--stop-return", "null"]
    run = train(*settings, "--max-steps", 100_000_000)
    run.wait_until(lambda: re.search(r"actor/\d: in environment step for", run.text()))
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert re.search(r"actor/\d: in environment step for \d+ s while the run ends, and is killed", run.text())
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []


def test_a_stopped_learner_is_replaced_on_ray(train):
    settings = ["--node-timeout", 12, "--checkpoint-every", 3, "--stop-return", "null"]
    run = train("--launcher", "ray", "--max-steps", 100_000_000, *settings)
    run.wait_for_steps(5, "learner_steps")
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    stopped = run.pid_of("learner/0")
    os.kill(stopped, signal.SIGSTOP)
    run.wait_until(lambda: "learner/0: no heartbeat for" in run.text(), timeout=60)
    run.wait_until(lambda: "learner/0: killed; started again (1 of 3" in run.text(), timeout=60)
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text(), timeout=200)
    run.wait_for_steps(run.rows()[-1]["learner_steps"] + 10, "learner_steps")
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    assert is_monotone(run)
    assert run.leftovers() == []


def test_top_shows_where_a_node_hangs(start, train, tmp_path):
    run = train("--env", "broken_environments:HangsInStep", "--max-steps", 100_000_000, *SETTINGS)
    run.wait_until((tmp_path / "hung").exists)
    run.wait_until(lambda: run.run_dir.joinpath("coordinator.json").exists())
    for node in ("actor/0", "actor/1"):
        top = start("top", run.run_dir, "--stack", node)
        assert top.wait() == 0, top.text()
    assert "time.sleep(1)" in top.text() and "in step" in top.text()
    listed = start("top", run.run_dir, "--once")
    assert listed.wait() == 0 and "in environment step" in listed.text()
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    ended = start("top", run.run_dir)
    assert ended.wait() == 2 and "is not running" in ended.text()
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("place", [(), ("--env-python", "same")], ids=["in process", "in a worker"])
@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_ends_an_inline_run_whose_environment_never_returns(start, tmp_path, monkeypatch, place, signals):
    monkeypatch.chdir(tmp_path)
    env = ["--env", "broken_environments:NeverResets", "--no-check-env", *place, "--evaluator", "false"]
    run = start("train", "ppo", *env, "--launcher", "inline", "--max-steps", 100_000, "--run-dir", tmp_path / "run")
    hung = [tmp_path / "hung", run.run_dir / "hung", run.run_dir.parent / "hung"]
    run.wait_until(lambda: any(path.exists() for path in hung), timeout=60)
    begun = time.monotonic()
    for _ in range(signals):
        run.signal(signal.SIGTERM, "launcher")
        time.sleep(2.0)
    assert run.wait(timeout=60) == 143, run.text()
    assert time.monotonic() - begun < (40 if signals == 1 else 14)
    assert run.leftovers() == []
