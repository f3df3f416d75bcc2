"""Parts with odd names, through all that is done with a run: it is recorded, learned from, exported, served."""

import re
import shutil

import odd_names
import pytest
from open_door import free_port

from callboard.cli.command import main
from callboard.policy_client import PolicyClient

pytestmark = pytest.mark.slow("daily")
ENV = "odd_names:OddNames"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--max-steps", "2000", "--launcher", "inline", "--record-episodes"]
    assert main(["train", "impala", "--env", ENV, "--run-dir", "run", *options]) == 0
    return "run"


def test_episodes_are_described_shown_and_learned_from(run):
    assert main(["dataset", "info", run]) == 0
    assert main(["dataset", "video", run, "--episode", "0", "--output", "episode.mp4"]) == 0
    options = ["--actors", "0", "--max-learner-steps", "20", "--launcher", "inline", "--run-dir", "bc"]
    assert main(["train", "bc", "--dataset", run, *options]) == 0
    assert main(["evaluate", "bc", "--checkpoint", "latest", "--env", ENV, "--episodes", "2"]) == 0


def test_a_policy_is_evaluated_exported_and_served(run, start):
    assert main(["evaluate", run, "--episodes", "2", "--video"]) == 0
    assert main(["export", run, "saved"]) == 0
    server = start("serve", run, "--listen", f"127.0.0.1:{free_port()}")
    server.wait_until(lambda: " at http://" in server.text())
    url, token = re.search(r"at (\S+); token (\S+)", server.text()).groups()
    environment = odd_names.OddNames()
    observation, _ = environment.reset(seed=1)
    episode = PolicyClient(url, token).begin(observation)
    for _ in range(3):
        observation, reward, *_ = environment.step(episode.action)
        episode.step(reward, observation)
    assert environment.action_space.contains({name: int(value) for name, value in episode.action.items()})


@pytest.mark.parametrize("agent", ["ppo", "r2d2"])
def test_nodes_in_processes_exchange_them(agent, start, tmp_path):
    shutil.copy(odd_names.__file__, tmp_path)
    steps = {"ppo": "4096", "r2d2": "16000"}[agent]
    run = start("train", agent, "--env", ENV, "--max-steps", steps, "--evaluator", "false", "--run-dir", "run")
    assert run.wait(timeout=200) == 0, run.text()
