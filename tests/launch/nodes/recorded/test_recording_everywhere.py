"""Recording under every launcher, with central inference, and with several policies: every episode that has ended."""

import json
import pathlib

import numpy as np
import pytest
import yaml

from callboard.launch.run_directory.layout import RunDirectory

minari = pytest.importorskip("minari")

pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).parents[2]
TWO_POLICIES = {
    "env": "echo_agents:Echo",
    "agent": {"name": "ppo", "unroll_length": 8, "batch_size": 8, "minibatches": 2, "epochs": 1},
    "policies": {"left": {}, "right": {"name": "apex", "batch_size": 16, "replay": {"min_size": 50}}},
    "actors": 1,
    "envs_per_actor": 4,
    "max_steps": 2000,
    "evaluator": False,
    "record_episodes": True,
    "record_infos": ["steps"],
}


def last_row(run_dir):
    return json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])


def episodes_in(folder):
    return list(minari.MinariDataset(str(folder / "data")))


@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        ("inline", []),
        ("threads", ["--inference=central"]),
        ("processes", ["--inference=central", "--inference-nodes=2"]),
        ("launchpad", []),
        ("launchpad", ["--inference=central"]),
        ("hosts", []),
        ("ray", []),
    ],
)
def test_every_launcher_records_every_episode_that_has_ended(train, launcher, options):
    run = train(
        f"--launcher={launcher}" if launcher not in ("hosts", "ray") else "--launcher",
        *([launcher] if launcher in ("hosts", "ray") else []),
        "--record-episodes",
        "--max-steps=6000",
        "--no-evaluator",
        "--stop-return=null",
        "--envs-per-actor=4",
        "--agent.batch-size=8",
        *options,
        recipe="ppo-cartpole",
    )
    assert run.wait(timeout=400) == 0, run.text()
    episodes = episodes_in(RunDirectory(run.run_dir).recorded)
    assert len(episodes) == last_row(run.run_dir)["episodes"] > 20
    assert all(episode.terminations[-1] or episode.truncations[-1] for episode in episodes)
    assert all(episode.rewards.sum() == len(episode.actions) for episode in episodes)
    assert len({episode.observations.tobytes() for episode in episodes}) == len(episodes)
    assert run.leftovers() == []


@pytest.mark.parametrize(("launcher", "inference"), [("inline", "local"), ("processes", "central")])
def test_each_policy_has_a_data_set_of_its_own(command_run, tmp_path, launcher, inference):
    path, run_dir = tmp_path / "recipe.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump({**TWO_POLICIES, "inference": inference}))
    command = ["train", "--recipe", path, "--run-dir", run_dir, "--launcher", launcher]
    run = command_run(command, tmp_path, python_path=FOLDER)
    assert run.wait(timeout=400) == 0, run.text()
    found = {name: episodes_in(policy.recorded) for name, policy in RunDirectory(run_dir).policies.items()}
    assert set(found) == {"left", "right"} and min(map(len, found.values())) > 5
    for episodes in found.values():
        assert all(episode.terminations[-1] or episode.truncations[-1] for episode in episodes)
        assert all(np.isfinite(episode.rewards).all() for episode in episodes)
        for episode in episodes:
            of_reset, *steps = episode.infos["steps"].tolist()
            # `right` leaves before the fourth step, and comes back with the fifth.
            begun = 5 if of_reset == 5 else 0
            assert begun or np.isnan(of_reset)
            assert steps == list(range(begun + 1, begun + 1 + len(episode)))
    assert run.leftovers() == []
