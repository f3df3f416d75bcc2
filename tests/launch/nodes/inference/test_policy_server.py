"""Training with simulators of other processes and interpreters, which are killed, as is the server's node."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from open_door import free_port
from other_interpreters import interpreters

from callboard.policy_client import PolicyClient, ServerError
from callboard.runtime.deadlines import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLES = ROOT / "examples" / "external_simulators"


class Simulators:
    """Processes of simulators, of any language."""

    def __init__(self, directory):
        self._directory = directory
        self.running = []

    def begin(self, run_dir, url, episodes, program=(sys.executable, EXAMPLES / "simulator.py")):
        token = (run_dir / "policy_server_token").read_text().strip()
        command = [*map(str, program), url, token, str(episodes)]
        self.running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.running[-1]

    def end(self):
        for process in self.running:
            process.kill()
            process.communicate()


@pytest.fixture
def simulators(tmp_path):
    processes = Simulators(tmp_path)
    yield processes
    processes.end()


@pytest.fixture
def serve(start, tmp_path):
    """Starts training with a policy server; returns the command, and the server's URL once it serves."""

    def start_training(agent, *options, places=8):
        port = free_port()
        spaces = ["--spaces", EXAMPLES / "spaces.json", "--actors", "1", "--envs-per-actor", str(places)]
        run_dir = ["--run-dir", tmp_path / "run"]
        run = start("train", agent, "--policy-server", f"127.0.0.1:{port}", *spaces, *run_dir, *options)
        run.wait_until(lambda: run.process.poll() is not None or "policy server at" in run.text())
        assert run.process.poll() is None, run.text()
        return run, f"http://127.0.0.1:{port}"

    return start_training


IN_THREADS = """
import sys, threading
from callboard import Experiment, run
from callboard.agents.ppo import Ppo
from callboard.policy_client import PolicyClient, ServerError, ServerUnreachable

spaces, token, port = sys.argv[1:]

def simulate():
    client = PolicyClient(f"http://127.0.0.1:{port}", open(token).read().strip(), patience=60.0)
    try:
        while True:
            episode = client.begin([0.0, 0.5])
            client._patience = 1.0
            for _ in range(9):
                episode.step(0.1, [0.1, 0.5])
            episode.end(1.0, [0.5, 0.5], terminated=True)
    except (ServerError, ServerUnreachable):
        pass

server = dict(spaces=spaces, policy_server=f"127.0.0.1:{port}", policy_server_token_file=token)
experiment = Experiment(Ppo(unroll_length=16), actors=1, envs_per_actor=4, max_steps=600, run_dir="run", **server)
threads = [threading.Thread(target=simulate) for _ in range(2)]
for thread in threads:
    thread.start()
outcome = run(experiment, "threads")
for thread in threads:
    thread.join()
print(outcome.exit_code, round(outcome.training_return, 3))
"""


@pytest.mark.slow
def test_a_program_trains_in_threads_with_a_token_of_its_own(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-of-its-own\n")
    token.chmod(0o600)
    arguments = [sys.executable, "-c", IN_THREADS, EXAMPLES / "spaces.json", token, str(free_port())]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "0 1.9", done.stdout + done.stderr
    assert "a-token" not in done.stdout + done.stderr
    assert not (tmp_path / "run" / "policy_server_token").exists()


SMALL_PPO = ("--agent.unroll-length", "32", "--agent.network.hidden-sizes", "[16]")


@pytest.mark.slow
def test_it_learns_from_simulators_of_which_some_are_killed(serve, simulators):
    run, url = serve("ppo", "--max-steps", "20000", "--policy-server-silence", "3", *SMALL_PPO)
    known = interpreters()
    assert 10 in known
    clients = [
        simulators.begin(run.run_dir, url, 10**6, (python, EXAMPLES / "simulator.py")) for python in known.values()
    ]
    for steps in (2000, 4000):
        run.wait_for_steps(steps)
        os.kill(clients.pop().pid, signal.SIGKILL)
    clients.append(simulators.begin(run.run_dir, url, 10**6))
    run.wait_for_steps(6000)
    assert all(client.poll() is None for client in clients)
    assert run.rows()[-1]["policy_server/cut_off_episodes"] >= 1
    before = run.pid_of("actor/0")
    os.kill(before, signal.SIGKILL)
    run.wait_for_steps(10_000)
    assert run.pid_of("actor/0") != before
    assert run.wait(400) == 0, run.text()
    last = run.rows()[-1]
    assert last["restarts"] == 1
    assert 20_000 <= last["environment_steps"] < 20_100
    assert last["actor/episode_return"] > 0.6, run.text()
    assert not run.leftovers()


@pytest.mark.slow
def test_the_example_in_javascript(serve, simulators):
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    run, url = serve("ppo", "--max-steps", "1000000", *SMALL_PPO)
    simulator = simulators.begin(run.run_dir, url, 30, (node, EXAMPLES / "simulator.js"))
    output, errors = simulator.communicate(timeout=300)
    assert simulator.returncode == 0, errors
    assert output.startswith("30 episodes, mean return of the last 30: ")
    wrong = subprocess.run([node, EXAMPLES / "simulator.js", url, "wrong-token"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "the token is wrong" in wrong.stderr
    run.interrupt()
    assert run.wait() == 130


@pytest.mark.slow
def test_an_agent_with_a_replay_learns_from_actions_that_clients_choose(serve):
    replay = ("--agent.replay.min-size", "200", "--agent.network.hidden-sizes", "[16]")
    run, url = serve("apex", "--max-steps", "100000", *replay, places=2)
    client = PolicyClient(url, (run.run_dir / "policy_server_token").read_text().strip())
    for number in range(60):
        episode = client.begin([0.0, 0.5], action=number % 2)
        for _ in range(9):
            episode.step(0.1, [0.1, 0.5], action=1)
        episode.end(1.0, [0.5, 0.5], terminated=True)
    run.wait_for_steps(600)
    run.wait_for_steps(1, "learner_steps")
    row = run.rows()[-1]
    assert row["environment_steps"] == 600 and row["episodes"] == 60
    assert row["actor/episode_return"] == pytest.approx(1.9, abs=1e-4)
    run.interrupt()
    assert run.wait() == 130


@pytest.mark.slow
def test_an_agent_that_learns_from_its_own_actions_refuses_others(serve):
    run, url = serve("impala", "--max-steps", "100000", "--agent.network.hidden-sizes", "[16]")
    client = PolicyClient(url, (run.run_dir / "policy_server_token").read_text().strip())
    with pytest.raises(ServerError, match="its own actions"):
        client.begin([0.0, 0.5], action=1)
    assert client.begin([0.0, 0.5]).action in (0, 1)
    assert client.health()["learner_step"] >= 0
    run.interrupt()
    assert run.wait() == 130


@pytest.mark.slow
def test_a_resumed_run_has_the_same_token(serve, start, tmp_path):
    run, url = serve("ppo", "--max-steps", "100000", *SMALL_PPO)
    token = (run.run_dir / "policy_server_token").read_text()
    assert (run.run_dir / "policy_server_token").stat().st_mode & 0o777 == 0o600
    assert token.strip() in run.text()
    run.interrupt()
    assert run.wait() == 130
    again = start("train", "--resume", "--run-dir", run.run_dir)
    client = PolicyClient(url, token.strip())
    assert wait_until(lambda: again.process.poll() is None and client.health()["status"] == "ok", 60)
    assert client.begin([0.0, 0.5]).action in (0, 1)
    assert wait_until(lambda: f"policy server at {url}" in again.text(), 30), again.text()
    assert json.loads((EXAMPLES / "spaces.json").read_text())["action"]["n"] == 2
    again.interrupt()
    assert again.wait() == 130
