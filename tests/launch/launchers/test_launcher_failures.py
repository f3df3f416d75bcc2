"""What goes wrong around the nodes ends the run with a message and exit code 1, and nothing is left."""

import os
import shutil
import subprocess
import sys

import psutil
import pytest

from callboard.runtime.deadlines import wait_until

pytestmark = pytest.mark.slow

ENDLESS = ("--max-steps", 100_000_000, "--stop-return", "null", "--evaluator", "false", "--actors", 1)
PORTS = 'ip link set lo up; echo 20000 20006 > /proc/sys/net/ipv4/ip_local_port_range; exec "$@"'
# Closes its output after the first line.
ONE_LINE = 'exec 3>&1; { "$@" 2>&3; echo $? > code; } | head -n 1; exit $(cat code)'
SCRIPT = """
import sys, threading
from callboard.launch.run import run
from callboard.launch.experiments.settings import parse_experiment, read_recipe
limits = ["--max-steps", "2000", "--stop-return", "null", "--evaluator", "false", "--actors", "1"]
experiment = parse_experiment(None, read_recipe("impala-cartpole"), [*limits, "--run-dir", "run"])
class BrokenMonitor:
    def status(self, status):
        raise ValueError("a broken monitor")
    notify = status
def call():
    if sys.argv[3] == "works":
        assert run(experiment, launcher=sys.argv[1]).exit_code == 0
    else:
        outcome = run(experiment, sys.argv[1], BrokenMonitor())
        assert outcome.exit_code == 1 and "a broken monitor" in outcome.error, outcome
if sys.argv[2] == "main":
    call()
else:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
print("the script is over")
"""


@pytest.fixture
def run_in(tmp_path, command_run):
    """Starts a training run through a shell script that calls it as `"$@"`."""
    runs = []

    def start(script, *arguments):
        command = ["train", "--recipe", "impala-cartpole", "--run-dir", tmp_path / "run", *ENDLESS, *arguments]
        prefix = script if isinstance(script, tuple) else ("sh", "-c", script, "sh")
        runs.append(command_run(command, tmp_path, prefix))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


def fails(run, message, code=1):
    assert run.wait(120) == code, run.text()
    assert message in run.text()
    assert run.leftovers() == []
    # With threads and inline, Reverb writes to the screen.
    return [line for line in run.text().splitlines() if not line.startswith("[reverb/")]


@pytest.mark.parametrize("launcher", ["processes", "threads", "inline", "launchpad"])
def test_output_that_is_closed(run_in, launcher):
    lines = fails(run_in(ONE_LINE, "--launcher", launcher), "launcher failed: the output was closed (Broken pipe)")
    assert len(lines) == 2


def test_too_few_ports(run_in):
    network = ("unshare", "--net", "sh", "-c", PORTS, "sh")
    if subprocess.run([*network, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces here")
    lines = fails(run_in(network), "launcher failed: Cannot assign requested address: there are not enough free ports")
    assert len(lines) == 1


@pytest.mark.parametrize("limit", [12, 16, 20, 24, 32, 48])
def test_too_few_descriptors(run_in, limit):
    """Wherever they run out there is an end, and an error; where they do not, the run continues."""
    run = run_in(f'ulimit -n {limit}; exec "$@"')
    run.wait_until(lambda: run.process.poll() is not None or run.rows() and run.rows()[-1]["learner_steps"] > 0)
    if run.process.poll() is None:
        run.interrupt()
        assert run.wait(60) == 130
    else:
        assert run.wait() in (1, 2) and run.text().strip()
    assert run.leftovers() == []


def test_an_import_that_fails(run_in, tmp_path):
    """In the forkserver, and so in every node."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "reverb.py").write_text("raise ImportError('wrong version of [reverb]')")
    run = run_in(f'PYTHONPATH={tmp_path}/broken:$PYTHONPATH exec "$@"')
    fails(run, "ImportError: wrong version of [reverb]")


@pytest.mark.parametrize("launcher", ["processes", "threads", "inline"])
def test_errors_in_brackets_and_exits(train, launcher):
    for environment, message in (
        ("LosesCamera", "OSError: cannot open camera [/dev/video0]"),
        ("LeavesPython", "SystemExit: 0"),
    ):
        settings = ["--env", f"leaving_environments:{environment}", "--launcher", launcher, *ENDLESS]
        run = train(*settings, recipe=None)
        lines = fails(run, "actor/0 failed")
        assert lines[-1] == message
        shutil.rmtree(run.run_dir)


@pytest.mark.parametrize("launcher", ["processes", "threads", "inline"])
def test_processes_that_environments_leave(train, tmp_path, launcher):
    started = tmp_path / "started"
    settings = ["--env", "leaving_environments:LeavesProcesses", "--launcher", launcher, "--evaluator", "false"]
    settings += ["--env-options.started", started]
    run = train(*settings, "--max-steps", 1000, "--actors", 1, recipe=None)
    assert run.wait(120) == 0, run.text()
    assert run.leftovers() == []
    # Those of the trial before the run, and those of the run.
    pids = list(map(int, started.read_text().split()))
    assert len(pids) >= 4 and wait_until(lambda: not any(map(psutil.pid_exists, pids)), 10)


@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize(
    "launcher, monitor",
    [
        *((launcher, "works") for launcher in ("processes", "threads", "inline")),
        *((launcher, "raises") for launcher in ("processes", "threads", "inline", "launchpad")),
    ],
)
def test_run_from_a_script(tmp_path, launcher, thread, monitor):
    """Which does not guard its main module, and ends as the interpreter does."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "script.py", launcher, thread, monitor],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script is over") == 1
    # Launchpad prints the error by which the program ended.
    assert launcher == "launchpad" or ("Traceback" not in done.stderr and "Error" not in done.stderr)
    assert list((tmp_path / "tmp").iterdir()) == [] and not (tmp_path / "run" / "tmp").exists()
