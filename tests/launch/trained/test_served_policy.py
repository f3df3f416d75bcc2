"""A served policy acts as `load_policy` does, for many clients, and loads newer weights."""

import concurrent.futures
import contextlib
import shutil
import threading

import gymnasium
import numpy as np
import pytest
from open_door import TOKEN, free_port
from untrained_runs import write_run

from callboard.environments.masked_observations import masked
from callboard.errors import CallboardError
from callboard.launch.nodes.inference.http_door import HttpDoor
from callboard.launch.run_directory.found_runs import RunReference
from callboard.launch.serving.server_address import ServerAddress
from callboard.launch.trained.saved_runs import load_policy
from callboard.launch.trained.served_policy import ServedPolicy
from callboard.policy_client import PolicyClient, ServerError

MASKED = ("--env=callboard.environments.masked_observations:masked", "--agent.network.lstm-size=16")
CASES = {
    "impala": (("--env=CartPole-v1",), lambda: gymnasium.make("CartPole-v1")),
    "r2d2": (MASKED, masked),
}


@contextlib.contextmanager
def opened(reference):
    policy, over = ServedPolicy(reference, 8, 60.0), threading.Event()
    thread = threading.Thread(target=policy.serve, args=(over,), daemon=True)
    thread.start()
    address = ServerAddress("127.0.0.1", free_port())
    door = HttpDoor(policy.episodes, policy.wire, address, TOKEN, None, 8, health=policy.health, acts_once=True)
    door.start()
    try:
        yield policy, address.url(False)
    finally:
        door.close()
        over.set()
        thread.join()


def played(environment, act, seed):
    """The actions of an episode, at most 30."""
    observation, _ = environment.reset(seed=seed)
    actions, reward, ended = [], None, False
    while not ended and len(actions) < 30:
        actions.append(act(observation, reward))
        observation, reward, terminated, truncated, _ = environment.step(actions[-1])
        ended = terminated or truncated
    return actions


def by_client(url, environment, seed):
    client, episodes = PolicyClient(url, TOKEN), []

    def act(observation, reward):
        if not episodes:
            episodes.append(client.begin(observation))
            return episodes[0].action
        return episodes[0].step(reward, observation)

    return played(environment, act, seed)


def by_policy(path, environment, seed):
    policy, states = load_policy(path), [None]

    def act(observation, reward):
        action, states[0] = policy(observation, states[0], reward=None if states[0] is None else reward)
        return action

    return played(environment, act, seed)


@pytest.mark.slow
@pytest.mark.parametrize("agent", CASES)
def test_many_clients_get_the_actions_of_the_policy(agent, tmp_path):
    options, make = CASES[agent]
    write_run(tmp_path / "run", agent, options, scale=2)
    seeds = range(4)
    with opened(RunReference(str(tmp_path / "run"), "best")) as (_, url):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            served = list(pool.map(lambda seed: by_client(url, make(), seed), seeds))
    expected = [by_policy(tmp_path / "run", make(), seed) for seed in seeds]
    assert served == expected
    assert len({tuple(actions) for actions in served}) > 1


@pytest.mark.slow("daily")
def test_newer_weights_are_loaded_and_damaged_ones_are_not(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("callboard.launch.trained.served_policy.RELOAD_SECONDS", 0.0)
    write_run(tmp_path / "run", steps=(5,), scale=2)
    write_run(tmp_path / "other", steps=(12,))
    notes = []
    policy = ServedPolicy(RunReference(str(tmp_path / "run"), "latest"), 2, 60.0, notify=notes.append)
    before = [variable.numpy() for variable in policy._weights.variables]
    policy.reload()
    assert policy.health()["policy"] == "checkpoints/000000000005/policy.npz" and not notes
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.copytree(tmp_path / "other" / "checkpoints" / "000000000012", checkpoints / "000000000012")
    policy.reload()
    assert policy.health() == {
        "policy": "checkpoints/000000000012/policy.npz",
        "reloads": 1,
        "open_episodes": 0,
    }
    assert notes == ["serves newer weights: checkpoints/000000000012/policy.npz"]
    after = [variable.numpy() for variable in policy._weights.variables]
    assert not all(map(np.array_equal, before, after))
    shutil.copytree(checkpoints / "000000000012", checkpoints / "000000000020")
    (checkpoints / "000000000020" / "policy.npz").write_bytes(b"damaged")
    policy.reload()
    assert policy.health()["policy"] == "checkpoints/000000000012/policy.npz"
    assert all(map(np.array_equal, after, [variable.numpy() for variable in policy._weights.variables]))
    # What stays so, here a run that is gone, is logged once.
    shutil.rmtree(checkpoints)
    for _ in range(3):
        policy.reload()
    assert sum("cannot be loaded" in line for line in caplog.messages) == 1


@pytest.mark.slow("daily")
def test_a_single_observation_and_wrong_ones(tmp_path):
    write_run(tmp_path / "run", scale=2)
    with opened(RunReference(str(tmp_path / "run"), "best")) as (policy, url):
        client = PolicyClient(url, TOKEN)
        for _ in range(20):
            answer = client._request("POST", "/v1/act", {"observation": [0.1, 0.0, -0.05, 0.0]})
            assert answer["action"] in (0, 1)
        with pytest.raises(ServerError, match="nothing else"):
            client._request("POST", "/v1/act", {"observation": [0.1, 0.0, -0.05, 0.0], "reward": 1.0})
        with pytest.raises(ServerError, match="but the environment gives"):
            client._request("POST", "/v1/act", {"observation": [0.1]})
        assert client.health()["policy"] == "checkpoints/best.npz"


def test_runs_that_cannot_be_served(tmp_path):
    write_run(tmp_path / "run", best=False)
    for run, message in [("none", "no run"), ("run", "no checkpoint")]:
        with pytest.raises(CallboardError, match=message):
            ServedPolicy(RunReference(str(tmp_path / run), "best"), 2, 60.0)
