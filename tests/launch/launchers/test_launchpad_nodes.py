"""The graph as a program that Launchpad alone runs: `lp.launch` without a launcher of ours."""

import json
import os
import pathlib
import re

import cloudpickle
import launchpad as lp
import pytest
from launchpad.launch import serialization

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.launchpad_nodes import GraphNode, SupervisingNode
from callboard.launch.program import make_program
from callboard.launch.run_directory.layout import RunDirectory

ROOT = pathlib.Path(__file__).parents[3]
STOCK = """\
import sys

import launchpad as lp
from absl import flags

from callboard.launch.program import make_program
from callboard.launch.run import make_run
from callboard.launch.experiments.settings import parse_experiment, read_recipe

if __name__ == "__main__":
    options = flags.FLAGS(sys.argv, known_only=True)[1:]
    program = make_program(make_run(parse_experiment(None, read_recipe("impala-cartpole"), options)))
    lp.launch(program, terminal="current_terminal")
"""
LAUNCH_TYPES = ("local_mt", "local_mp")
EVALUATION = ("--evaluate-every", 3000, "--evaluation-episodes", 10, "--evaluation-envs", 10, "--stop-return", 501)


@pytest.fixture
def program(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    return make_program(Run(experiment, experiment.layout(), RunDirectory(tmp_path)))


@pytest.fixture
def launch(command_run, tmp_path):
    """Starts a script that launches IMPALA on CartPole with Launchpad alone."""
    runs = []

    def start_script(launch_type, *options):
        script = tmp_path / "script.py"
        script.write_text(STOCK)
        arguments = ["--lp_launch_type", launch_type, "--run-dir", tmp_path / "run", *options]
        runs.append(command_run(arguments, tmp_path, program=[script]))
        return runs[-1]

    yield start_script
    for run in runs:
        run.end()


def test_every_node_can_be_sent_to_a_process_of_its_own(program):
    for label, nodes in program.groups.items():
        for node in nodes:
            assert isinstance(node, lp.PyClassNode)
        serialization.check_nodes_are_serializable(label, nodes)


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", LAUNCH_TYPES)
def test_launchpad_alone_trains_to_475_and_leaves_nothing(launch, launch_type):
    run = launch(launch_type)
    assert run.wait(900) == 0, run.text()
    (end,) = re.findall(r"The run is over: the return ([\d.]+), .*Score: [\d.]+ ± .*Run directory: run", run.text())
    assert float(end) >= 475
    *_, checkpoint = sorted((run.run_dir / "checkpoints").glob("0*"))
    last = run.rows()[-1]
    assert int(checkpoint.name) == last["learner_steps"]
    counters = json.loads((checkpoint / "counters.json").read_text())
    assert sum(counts.get("environment_steps", 0) for counts in counters.values()) == last["environment_steps"]
    assert not (run.run_dir / "lock").exists() and not (run.run_dir / "tmp").exists()
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", LAUNCH_TYPES)
def test_the_example_runs_with_launchpad_alone(command_run, tmp_path, monkeypatch, launch_type):
    monkeypatch.setenv("LAUNCHPAD_LAUNCH_LOCAL_TERMINAL", "current_terminal")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    options = ["--lp_launch_type", launch_type, "--run-dir", tmp_path / "run", "--max-steps", 30_000, *EVALUATION]
    run = command_run(options, tmp_path, program=("-m", "examples.own_node"))
    try:
        assert run.wait(400) == 0, run.text()
        assert re.search(r"The run is over: .*\(30,\d+ environment steps\). Score: ", run.text())
        assert len((run.run_dir / "played.jsonl").read_text().splitlines()) > 3
        assert run.leftovers() == []
    finally:
        run.end()


def test_the_coordinator_alone_supervises(program):
    nodes = {label: [type(node) for node in group] for label, group in program.groups.items()}
    assert nodes.pop("coordinator") == [SupervisingNode]
    assert {kind for kinds in nodes.values() for kind in kinds} == {GraphNode}


def test_all_nodes_know_which_directory_is_theirs(program, tmp_path):
    supervising, *others = program.get_all_nodes()
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run").identified()
    for node in (supervising, *supervising._graph):
        node.move_to(directory)
    assert all(node._run.directory.identity for node in (supervising, *others))
    assert not cloudpickle.loads(cloudpickle.dumps(supervising))._graph


@pytest.mark.slow
def test_a_run_of_launchpad_alone_ends_without_its_directory(launch):
    run = launch("local_mt", "--max-steps", 100_000_000, "--checkpoint-every", 1, *EVALUATION)
    run.wait_until(lambda: run.process.poll() is not None or any(run.run_dir.glob("checkpoints/[0-9]*")))
    run.run_dir.rename(run.run_dir.with_name("elsewhere"))
    run.wait(120)
    assert "was renamed or deleted while the run was running" in run.text()
    assert not run.run_dir.exists()
