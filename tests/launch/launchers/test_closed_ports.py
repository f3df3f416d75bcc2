"""No port of a run accepts a connection from a machine that is not part of it, whichever process listens there.

The ports are not a list that is known beforehand: they are all on which some process of the run's machine listens.
With `CALLBOARD_PORTS_TABLE=FILE`, each case adds its row of the table in `docs/security.md` to that file.
"""

import os
import pathlib
import signal

import psutil
import pytest
from host_network import HostNetwork, why_not

from callboard.launch.processes.ports import RAY_PORTS

pytestmark = pytest.mark.slow

ENDLESS = ("--max-steps", 100_000_000, "--stop-return", "null")
OWN_NODE = ("--add-nodes", "callboard.tests.launch.serving_node:add_nodes")
STOCK = """\
import sys

import launchpad as lp
from absl import flags

from callboard.launch.program import make_program
from callboard.launch.run import make_run
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.tests.launch.serving_node import add_nodes

if __name__ == "__main__":
    options = flags.FLAGS(sys.argv, known_only=True)[1:]
    run = make_run(parse_experiment(None, read_recipe("impala-cartpole"), options))
    program = make_program(run)
    add_nodes(program, run)
    lp.launch(program, terminal="current_terminal")
"""
SESSION = """\
import sys

from callboard.launch.launchers.registry import make_launcher
from callboard.launch.session import Session
from callboard.launch.experiments.settings import parse_experiment, read_recipe

if __name__ == "__main__":
    experiment = parse_experiment(None, read_recipe("impala-cartpole"), sys.argv[1:])
    with Session(experiment, make_launcher("threads")) as session:
        session.train(steps=100_000_000)
"""
PLAYS_SECONDS = 15.0
"""Processor time after which an evaluation has begun to play."""


@pytest.fixture
def network():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    network = HostNetwork(["here", "stranger"])
    yield network
    network.close()


@pytest.fixture
def start(network, tmp_path, command_run):
    """Starts `callboard train` with a recipe, or a script, on the host `here`."""
    runs = []

    def start_run(*options, script=None, command=("train", "--recipe", "impala-cartpole", *ENDLESS)):
        arguments = [*([] if "evaluate" in command else ["--run-dir", tmp_path / "run"]), *options]
        program = {}
        if script is not None:
            (tmp_path / "script.py").write_text(script)
            program["program"] = [tmp_path / "script.py"]
            arguments = [f"{name}={value}" for name, value in zip(arguments[::2], arguments[1::2], strict=True)]
        else:
            arguments = [*command, *arguments]
        runs.append(command_run(arguments, tmp_path, network.inside("here"), **program))
        return runs[-1]

    yield start_run
    for run in runs:
        run.end()


def note(kind, listening, reached_here, reached_there):
    """Adds a row to the table of what another machine got."""
    path = os.environ.get("CALLBOARD_PORTS_TABLE")
    row = f"| {kind} | {listening} | {reached_here} | {reached_there} |\n"
    print(row)
    if path:
        with pathlib.Path(path).open("a") as file:
            file.write(row)


def check_closed(network, kind, least):
    """Checks that this machine reaches all ports, and another one none."""
    ports = network.listening("here")
    listeners = network.listeners("here")
    assert sorted({port for of_process in listeners.values() for port in of_process}) == ports
    assert len(ports) >= least, listeners
    from_here, from_there = network.reached("here", "here", ports), network.reached("stranger", "here", ports)
    note(kind, f"{len(ports)} ports of {len(listeners)} processes", len(from_here), len(from_there))
    assert from_here == ports
    assert from_there == []


@pytest.mark.parametrize(
    "kind, least, options",
    [
        ("`inline`", 1, ("--launcher", "inline")),
        ("`threads`", 3, ("--launcher", "threads")),
        ("`processes`, central inference", 4, ("--launcher", "processes", "--inference", "central")),
        ("`processes`, two learners, a `CourierNode`", 7, ("--launcher", "processes", "--learners", 2, *OWN_NODE)),
        ("`threads`, a `CourierNode`", 4, ("--launcher", "threads", *OWN_NODE)),
        ("`launchpad`, threads, a `CourierNode`", 5, ("--launcher", "launchpad", *OWN_NODE)),
        (
            "`launchpad`, processes, a `CourierNode`",
            5,
            ("--launcher", "launchpad", "--launch-type", "local_mp", *OWN_NODE),
        ),
    ],
)
def test_a_stranger_reaches_no_port_of_a_run_on_one_machine(network, start, kind, least, options):
    run = start(*options)
    run.wait_for_steps(1, "learner_steps")
    check_closed(network, kind, least)


@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_a_stranger_reaches_no_port_of_a_program_that_launchpad_alone_runs(network, start, launch_type):
    run = start("--lp_launch_type", launch_type, "--max-steps", 100_000_000, "--stop-return", "null", script=STOCK)
    run.wait_for_steps(1, "learner_steps")
    check_closed(network, f"`lp.launch` alone, `{launch_type}`, a `CourierNode`", 4)


def test_a_stranger_reaches_no_port_of_a_session(network, start):
    run = start("--max-steps", 100_000_000, "--stop-return", "null", script=SESSION)
    run.wait_for_steps(1, "learner_steps")
    check_closed(network, "a `Session`, `threads`", 3)


def test_an_evaluation_listens_nowhere(network, start, tmp_path):
    assert start("--launcher", "inline", "--max-steps", 3000).wait() == 0
    run = start(command=("evaluate", tmp_path / "run", "--steps", 100_000_000))
    # It plays by then; its libraries take less to begin.
    run.wait_until(lambda: psutil.Process(run.process.pid).cpu_times().user > PLAYS_SECONDS, 120)
    check_closed(network, "`callboard evaluate`", 0)


def test_a_stranger_reaches_no_port_of_a_search(network, start, tmp_path):
    search = ("--search", "agent.optimizer.learning_rate=grid(1e-3,1e-4)", "--concurrent", 2)
    run = start(*search, command=("tune", "--recipe", "impala-cartpole", *ENDLESS))
    run.wait_until(lambda: any(file.stat().st_size for file in tmp_path.glob("run/**/metrics.jsonl")), 180)
    ports = network.listening("here")
    assert len(ports) >= 2
    from_here, from_there = network.reached("here", "here", ports), network.reached("stranger", "here", ports)
    note("`tune`", f"{len(ports)} ports, Ray's own included", len(from_here), len(from_there))
    assert from_there == []


def test_a_restarted_node_is_closed_too(network, start):
    run = start()
    run.wait_for_steps(1, "learner_steps")
    for node in ("learner/0", "replay/0", "coordinator/0"):
        os.kill(run.pid_of(node), signal.SIGKILL)
        steps = run.rows()[-1]["environment_steps"]
        run.wait_for_steps(steps + 5000)
    check_closed(network, "`processes`, all servers restarted", 3)


def test_all_machines_reach_a_run_that_is_open_to_them(network, start):
    run = start("--listen", "all")
    run.wait_for_steps(1, "learner_steps")
    ports, reached = network.listening("here"), network.reached("stranger", "here")
    note("`processes --listen all`", f"{len(ports)} ports", len(network.reached("here", "here")), len(reached))
    assert reached == ports
    assert "the ports of this run are open to all machines (listen all)" in run.text()


def test_a_stranger_reaches_no_port_of_a_run_on_several_hosts(hosts):
    hosts = hosts("a", "b", "stranger")
    network = hosts.network
    placed = {name: network.addresses[name] for name in ("a", "b")}
    hosts.write_cluster(hosts=placed, learner=["a"], replay=["a"], actor={"a": 1, "b": 1}, evaluator=["b"])
    for name in placed:
        hosts.start(name, *ENDLESS)
    hosts.wait_until(lambda: hosts.runs["a"].rows() and hosts.runs["a"].rows()[-1]["learner_steps"] >= 3)
    ports = network.listening("a")
    assert len(ports) >= 4
    from_host, from_there = network.reached("b", "a", ports), network.reached("stranger", "a", ports)
    note("`hosts`, the first host", f"{len(ports)} ports", f"{len(from_host)}, from the other host", len(from_there))
    assert from_host == ports
    assert from_there == []
    assert network.reached("stranger", "b") == []


def test_a_stranger_reaches_no_port_of_the_nodes_on_ray(network, start):
    run = start("--launcher", "ray", "--ray-address", "local")
    run.wait_for_steps(1, "learner_steps")
    ports = network.listening("here")
    assert len([port for port in ports if port in RAY_PORTS]) >= 2
    # Without a route to other networks, Ray's own ports are at 127.0.0.1.
    from_here, from_there = network.reached("here", "here", ports), network.reached("stranger", "here", ports)
    note("`ray`, a local cluster", f"{len(ports)} ports, Ray's own included", len(from_here), len(from_there))
    assert from_there == []
