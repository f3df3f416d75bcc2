"""The address of a policy server that is taken: one line, exit code 2, and nothing starts."""

import socket
import subprocess
import sys

import pytest
from untrained_runs import write_run

SPACES = '{"observation": {"type": "Box", "shape": [2]}, "action": {"type": "Discrete", "n": 2}}'


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "run", "--listen"],
        ["train", "ppo", "--spaces", "spaces.json", "--run-dir", "new", "--policy-server"],
    ],
    ids=["a saved policy", "a run"],
)
def test_an_address_in_use_is_one_line(command, tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "spaces.json").write_text(SPACES)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        started = [sys.executable, "-m", "callboard", *command, address]
        done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and done.stdout == "", done
    expected = f"the policy server cannot listen at {address}: Address already in use; choose another address or port\n"
    assert done.stderr.endswith(expected) and done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
