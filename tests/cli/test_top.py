"""The table of `callboard top`, and its options."""

import json
import subprocess
import sys

import pytest
from rich.console import Console

from callboard.cli.top import main, overview_table
from callboard.errors import CallboardError

STATUS = {
    "environment_steps": 1000,
    "max_steps": 4000,
    "learner_steps": 10,
    "actor/steps_per_second": 1234.0,
    "learner/steps_per_second": 5.5,
    "waiting": {"actor": {"replay": 0.5}, "learner": {}},
}
HEALTH = {"host": "cpu-0", "process": 17, "cpu": 1.5, "memory": 300 * 2**20, "activity": "in learner step"}


def printed(table, width=160):
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(overview_table({**STATUS, "table": table}, width))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_the_table_shows_what_each_node_does():
    waiting = {"data": 0.25, "newer weights": 0.5, "replay/0 to start": 0.01}
    lines = printed(
        [
            {"node": "actor/0", "restarts": 2, "silent": 0.1},
            {"node": "actor/1", "restarts": 0, "silent": 42.0, "lag": 3, "waiting": {}, **HEALTH},
            {"node": "learner/0", "restarts": 0, "silent": 0.1, "waiting": waiting, **HEALTH},
        ]
    )
    assert lines == [
        "1,000 of 4,000 environment steps 1,234 steps/s 10 learner steps 5.5 learner steps/s",
        "actors wait 50% of the time: the learner is the bottleneck",
        "",
        "node host process CPU memory waiting lag restarts doing",
        "actor/0 2 starting",
        "actor/1 cpu-0 17 150% 300 MiB - 3 0 silent for 42 s, then in learner step",
        "learner/0 cpu-0 17 150% 300 MiB 50% for newer weights, 25% for data - 0 in learner step",
    ]


@pytest.mark.parametrize(("width", "hidden"), [(100, {"host", "process"}), (60, {"host", "process", "waiting"})])
def test_a_narrow_terminal_shows_fewer_columns_and_whole_names(width, hidden):
    names = ["coordinator/0", "inference/right/10", "inference/right/11"]
    node = {"restarts": 0, "silent": 0.1, "waiting": {"replay to take data": 0.5}, **HEALTH}
    lines = printed([{"node": name, **node} for name in names], width)
    columns = "node host process CPU memory waiting lag restarts doing".split()
    heading = lines.index(" ".join(column for column in columns if column not in hidden))
    assert [line.split()[0] for line in lines[heading + 1 :] if "150%" in line] == names


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "callboard top needs the run directory, a path or a URL, or host:port"),
        (["run", "--seconds", "x"], "--seconds must be a number"),
        (["run", "--seconds", "0"], "--seconds must be from 0.1 to 3600, not 0"),
        (["run", "--seconds", "nan"], "--seconds must be a number, not"),
        (["run", "--onec"], "did you mean '--once'?"),
        (["run", "--stack"], "--stack needs a value"),
        (["no/such/run"], "there is no run in no/such/run: it has no experiment.yaml"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments, message):
    with pytest.raises(CallboardError) as caught:
        main(arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["processes", "launchpad", "ray"])
def test_the_nodes_of_a_run_are_shown_under_every_launcher(train, launcher):
    run = train("--launcher", launcher, "--max-steps", 100_000_000, "--stop-return", "null")
    run.wait_for_steps(3, "learner_steps")
    assert shown(run.run_dir) == ["actor/0", "actor/1", "coordinator/0", "evaluator/0", "learner/0", "replay/0"]
    assert "in run" in top(run.run_dir, "--stack", "actor/0").stdout
    run.interrupt()
    assert run.wait() == 130, run.text()


@pytest.mark.slow
def test_the_nodes_of_several_hosts_are_shown_on_the_first_and_by_address(hosts):
    hosts = hosts("a", "b")
    hosts.write_cluster(learner=["a"], replay=["a"], actor={"a": 1, "b": 1}, evaluator=[])
    a, _ = hosts.start_all("--max-steps", 100_000_000, "--stop-return", "null")
    nodes = ["actor/0", "actor/1", "coordinator/0", "learner/0", "replay/0"]
    hosts.wait_until(lambda: a.rows() and a.rows()[-1]["learner_steps"] >= 3)
    hosts.wait_until(lambda: top(a.run_dir, "--once", inside=hosts.network.inside("a")).stdout.count("MiB") == 5)
    # The host names of namespaces are all the same, unlike those of machines.
    on_another = [*hosts.network.inside("b"), "unshare", "--uts", "sh", "-c", 'hostname other; exec "$@"', "top"]
    assert shown(a.run_dir, inside=hosts.network.inside("a")) == nodes
    port = json.loads((a.run_dir / "coordinator.json").read_text())["port"]
    address = f"{hosts.network.addresses['a']}:{port}"
    # What answers at an address can execute code: it has to be named.
    refused = top(a.run_dir, inside=on_another)
    assert refused.returncode == 2 and refused.stderr.endswith(f"callboard top {address}\n")
    assert shown(address, inside=on_another) == nodes
    assert "in run" in top(address, "--stack", "actor/1", inside=on_another).stdout
    unreachable = top(address, inside=["unshare", "--net", "--uts", "sh", "-c", 'hostname other; exec "$@"', "top"])
    assert unreachable.returncode == 2 and unreachable.stderr.count("\n") == 1
    assert "cannot be reached from here" in unreachable.stderr
    hosts.runs["a"].interrupt()
    for run in hosts.runs.values():
        assert run.wait(120) == 130, run.text()


def top(run, *arguments, inside=()):
    command = [*inside, sys.executable, "-m", "callboard", "top", run, *arguments]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)


def shown(run, inside=()):
    """The nodes in the table; each must have been heard of."""
    done = top(run, "--once", inside=inside)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    rows = rows[rows.index([]) + 2 :]
    assert all("MiB" in row for row in rows), done.stdout
    return [row[0] for row in rows]
