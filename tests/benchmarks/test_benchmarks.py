"""Every benchmark runs, small, and says what has failed."""

import functools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from callboard.benchmarks.acting import BARE_ENVIRONMENTS
from callboard.benchmarks.harness import BENCHMARKS
from callboard.benchmarks.results import load
from callboard.benchmarks.side import SideFailed, SideProcess
from callboard.launch.launchers.node_processes.forkserver import start_forkserver, stop_forkserver
from callboard.runtime.deadlines import wait_until


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "peers"])
def test_a_quick_benchmark_gives_figures_of_both_sides(name, tmp_path):
    command = [sys.executable, "-m", "callboard.benchmarks.command", "run", name, "--quick", "--repeats", "2"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "results")],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    (result,) = load(tmp_path / "results" / f"{name}.json")
    assert result.quick and result.cases
    for case in result.cases:
        assert len(case.ours) == len(case.limit) == 2, case
        assert all(figure > 0 for figure in (*case.ours, *case.limit)), case
    assert not list(temporary.iterdir())


@pytest.mark.slow("daily")
@pytest.mark.parametrize("library", BARE_ENVIRONMENTS)
def test_bare_environments_step(library):
    step = BARE_ENVIRONMENTS[library](2)
    for action in (None, np.zeros(2, np.int32)):
        assert step(action).shape[0] == 2


@pytest.mark.slow
def test_the_error_of_a_side_that_cannot_be_made_is_shown():
    start_forkserver()
    side = SideProcess(functools.partial(int, "no number"))
    try:
        time.sleep(0.5)
        with pytest.raises(SideFailed, match="invalid literal for int"):
            side.measure()
    finally:
        side.close()
        stop_forkserver()


_PAUSED_SERVERS = """
import time
from callboard.benchmarks.side import ServingProcess

def started():
    return None, None

servers = [ServingProcess() for _ in range(3)]
for server in servers:
    server.start(started)
    server.pause()
print(*[server.pid for server in servers], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_paused_servers_end_with_the_process_that_created_them(number):
    command = [sys.executable, "-c", _PAUSED_SERVERS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as creator:
        assert creator.stdout is not None
        servers = [psutil.Process(int(pid)) for pid in creator.stdout.readline().split()]
        assert len(servers) == 3 and all(wait_until(lambda s=s: s.status() == "stopped", 10.0, 0.01) for s in servers)
        creator.send_signal(number)
    try:
        left = psutil.wait_procs(servers, timeout=20.0)[1]
        assert not left
    finally:
        for server in servers:
            if server.is_running():
                server.kill()
