"""The example that serves a policy with Ray Serve."""

import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import numpy as np
import psutil
import pytest
from ended import still_running
from untrained_runs import write_run

from callboard import load_policy

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMORY = ("--env=callboard.environments.masked_observations:masked", "--agent.network.lstm-size=8")


@pytest.fixture
def serve(tmp_path):
    """Serves a run by the example; gives a function that sends a request."""
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    started = []
    # Ray's sockets lie in it: their paths must be short.
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as directory:

        def start(run):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "examples" / "serve_policy.py"), str(run), "--port", str(port)],
                env={**os.environ, "RAY_TMPDIR": directory, "TMPDIR": directory},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            started.append(process)
            lines = []
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if line.startswith("serving"):
                    break
            assert process.poll() is None and lines[-1].startswith("serving"), "".join(lines)

            def send(content):
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}", data, timeout=60) as answer:
                        return json.load(answer)
                except urllib.error.HTTPError as error:
                    return error.code, json.load(error)

            return process, send

        yield start
        for process in started:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("agent, options", [("impala", ("--env=CartPole-v1",)), ("r2d2", MEMORY)])
def test_it_serves_the_actions_of_the_run_to_many_clients(agent, options, serve, tmp_path):
    write_run(tmp_path / "run", agent, options, scale=2)
    process, send = serve(tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    size = policy.spec.observation.shape[0]

    def play(client):
        """Compares an episode of observations, with the state that goes back and forth."""
        random = np.random.default_rng(client)
        served, state = None, None
        for _ in range(20):
            observation, reward = random.normal(0, 0.1, size), float(random.normal())
            answer = send({"observation": observation.tolist(), "state": served, "reward": reward})
            served = answer["state"]
            action, state = policy(observation, state, reward)
            assert answer["action"] == action

    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        list(clients.map(play, range(32)))
    code, answer = send({"observation": [0.0] * (size + 1)})
    assert code == 400 and "but the environment gives" in answer["error"]
    assert send(b"x")[0] == send({})[0] == 400
    good = [0.0] * size
    for wrong in (
        b"[" * 5000,
        b'{"observation": [1e999]}',
        {"observation": ["x" * 30_000, *[""] * 10_000]},
        {"observation": good, "state": ["x" * 30_000, *[""] * 10_000]},
        {"observation": good, "state": 3},
        {"observation": good, "state": {"a": [1]}},
        {"observation": good, "reward": ["x" * 30_000, *[""] * 10_000]},
        {"observation": good, "reward": [1.0, 2.0]},
        {"observation": {"a": good}},
        {"observation": [good, good]},
    ):
        code, answer = send(wrong)
        assert code == 400 and "\n" not in answer["error"], (wrong, answer)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    alive = still_running(children, timeout=30)
    assert not alive, [child.cmdline() for child in alive]
