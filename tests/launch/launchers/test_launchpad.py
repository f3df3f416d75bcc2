"""The graph as a genuine Launchpad program: stock `lp.launch`, our launchpad launcher, and nodes of the user's own."""

import json
import os
import pathlib
import re
import signal
import threading

import pytest
from launchpad.launch import worker_manager

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.launchpad import LaunchpadLauncher, launchpad_signals
from callboard.launch.program import make_program
from callboard.launch.run_directory.layout import RunDirectory

ROOT = pathlib.Path(__file__).parents[3]
LAUNCH_TYPES = ("local_mt", "local_mp")
EVALUATION = ("--evaluate-every", 3000, "--evaluation-episodes", 10, "--evaluation-envs", 10, "--stop-return", 501)
ENDLESS = ("--max-steps", 10_000_000, "--stop-return", 501)


def program_of(directory):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    return make_program(Run(experiment, experiment.layout(), RunDirectory(directory)))


@pytest.mark.parametrize(
    "launch_type, settings, message",
    [
        ("local_mt", {"learners": 2}, "the launchpad launcher has one process, and each of 2 learners needs its own"),
        ("local_mt", {"run_dir": "s3://bucket/run"}, "needs a run directory that is a path"),
    ],
)
def test_what_the_launch_type_cannot_run_is_refused(launch_type, settings, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        LaunchpadLauncher(launch_type).check(Experiment(**{"agent": None, "env": "CartPole-v1", **settings}))


def test_launchpad_installs_no_handlers_from_other_threads():
    before, arrived = {number: signal.getsignal(number) for number in signal.Signals}, []

    def run():
        with launchpad_signals() as signals:
            worker_manager.WorkerManager()
        arrived.append(signals)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    # If Launchpad had tried to, Python would have raised an error in that thread.
    assert arrived == [[]]
    assert {number: signal.getsignal(number) for number in signal.Signals} == before


def test_launchpad_handles_signals_only_during_a_run():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    for _ in range(2):
        with launchpad_signals() as arrived:
            manager = worker_manager.WorkerManager()
            os.kill(os.getpid(), signal.SIGTERM)
            assert manager.wait_for_stop(5)
            manager.wait()
        assert arrived == [signal.SIGTERM]
        assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", LAUNCH_TYPES)
def test_the_launcher_trains_until_its_limit_and_leaves_nothing(train, launch_type):
    run = train("--launcher", "launchpad", "--launch-type", launch_type, "--max-steps", 20_000, *EVALUATION)
    assert run.wait() == 0, run.text()
    assert re.search(r"^The run is over: .*\(20,\d+ environment steps\). Score: ", run.end_line())
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", LAUNCH_TYPES)
@pytest.mark.parametrize("number, target", [(signal.SIGINT, "group"), (signal.SIGTERM, "launcher")])
def test_a_signal_ends_the_run_with_a_checkpoint(train, launch_type, number, target):
    run = train("--launcher", "launchpad", "--launch-type", launch_type, *ENDLESS)
    run.wait_for_steps(3, "learner_steps")
    run.signal(number, target)
    assert run.wait() == 128 + number, run.text()
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []


@pytest.mark.slow
def test_a_node_that_is_killed_ends_the_run_with_a_checkpoint(train, tmp_path, monkeypatch):
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
    options = ("--launch-type", "local_mp", "--terminal", "output_to_files")
    run = train("--launcher", "launchpad", *options, *ENDLESS)
    run.wait_for_steps(3, "learner_steps")
    run.look()
    pid = re.findall(r"actor/0 begins, process (\d+)", (tmp_path / "logs" / "actor" / "0").read_text())[0]
    os.kill(int(pid), signal.SIGKILL)
    assert run.wait() == 1, run.text()
    assert "actor/0 failed: its process has ended" in run.text()
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []


@pytest.mark.slow
def test_nodes_end_with_a_checkpoint_when_the_launcher_is_killed(train):
    run = train("--launcher", "launchpad", "--launch-type", "local_mp", *ENDLESS)
    run.wait_for_steps(3, "learner_steps")
    run.look()
    run.process.kill()
    # Launchpad's own temporary files remain.
    run.wait_until(lambda: not [left for left in run.leftovers() if left[0].isdecimal()], timeout=60)
    assert list((run.run_dir / "checkpoints").glob("0*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [("launchpad",), ("launchpad", "--launch-type", "local_mp"), ("threads",), ("processes",), ("hosts",), ("ray",)],
    ids="-".join,
)
def test_nodes_of_the_user_s_own_run_under_every_launcher(train, monkeypatch, launcher):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    options = ("--add-nodes", "examples.own_node:add_nodes", "--launcher", *launcher)
    # Long enough for the player to begin while the policy still changes, on every launcher.
    run = train("--max-steps", 150_000, *EVALUATION, *options)
    assert run.wait(400) == 0, run.text()
    rows = [json.loads(line) for line in (run.run_dir / "played.jsonl").read_text().splitlines()]
    assert rows[-1]["learner_step"] > rows[0]["learner_step"]
    assert rows[-1]["environment_steps"] > 20_000
    assert all(row["return"] >= 1 for row in rows[:-1])
    assert run.leftovers() == []
