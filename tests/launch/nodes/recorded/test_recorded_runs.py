"""Runs that record their episodes, and runs that learn from them."""

import json
import shutil
import signal
import subprocess
import time

import gymnasium
import numpy as np
import pytest

from callboard.environments.recorded import open_data
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.launch.run_directory.layout import RunDirectory

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")


def experiment_of(agent, directory, **settings):
    from callboard.agents.registry import agent_class
    from callboard.settings.nested_settings import from_values

    of_agent = settings.pop("agent_settings", {})
    values = {"network.hidden_sizes": (4,), "batch_size": 8, **of_agent}
    common = {"env": "CartPole-v1", "actors": 1, "envs_per_actor": 4, "evaluator": False, "run_dir": directory}
    return Experiment(agent=from_values(agent_class(agent), values), **{**common, **settings})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The directory of a run that has recorded its episodes, inline."""
    directory = tmp_path_factory.mktemp("runs") / "recorded"
    settings = {"replay.min_size": 100, "replay.samples_per_insert": 1.0, "replay.size": 1000}
    outcome = run(
        experiment_of("bc", directory, max_steps=600, record_episodes=True, agent_settings=settings), "inline"
    )
    assert outcome.exit_code == 0, outcome.error
    return directory


@pytest.mark.slow("daily")
def test_a_run_records_every_episode_that_has_ended(recorded):
    rows = [json.loads(line) for line in (recorded / "metrics.jsonl").read_text().splitlines()]
    found = minari.MinariDataset(str(RunDirectory(recorded).recorded / "data"))
    assert found.total_episodes == rows[-1]["episodes"] > 10
    assert found.recover_environment().spec.id == "CartPole-v1"
    for episode in found:
        assert episode.terminations.tolist() == [False] * (len(episode) - 1) + [True]
        # CartPole's reward is 1 for every step, and a new episode begins near the middle.
        assert episode.rewards.sum() == len(episode) and np.abs(episode.observations[0]).max() < 0.05
    # The vector form of CartPole has one generator for all environments, so that no seed begins an episode again.
    assert not any("seed" in one for one in found.storage.get_episode_metadata(range(found.total_episodes)))


@pytest.mark.slow
def test_seeds_begin_the_same_episodes_again(tmp_path):
    settings = {"replay.min_size": 100, "replay.samples_per_insert": 1.0, "replay.size": 1000}
    experiment = experiment_of(
        "bc",
        tmp_path,
        max_steps=200,
        record_episodes=True,
        agent_settings=settings,
        env_options={"vectorized": False, "max_episode_steps": 30},
    )
    assert run(experiment, "inline").exit_code == 0
    found = minari.MinariDataset(str(RunDirectory(tmp_path).recorded / "data"))
    environment = found.recover_environment()
    assert environment.spec.max_episode_steps == 30 and gymnasium.spec("CartPole-v1").max_episode_steps == 500
    seeds = [one.get("seed") for one in found.storage.get_episode_metadata(range(found.total_episodes))]
    assert sum(seed is not None for seed in seeds) == 4
    for episode, seed in zip(found, seeds, strict=True):
        if seed is not None:
            assert np.allclose(environment.reset(seed=int(seed))[0], episode.observations[0])


@pytest.mark.slow("daily")
def test_a_run_without_actors_learns_from_them_with_all_of_them_in_replay(recorded, tmp_path):
    experiment = experiment_of(
        "bc", tmp_path, actors=0, dataset=str(recorded), max_learner_steps=20, evaluator=True, evaluation_episodes=2
    )
    outcome = run(experiment, "inline")
    assert outcome.exit_code == 0, outcome.error
    assert "reached max_learner_steps (20 learner steps)" in outcome.reason and outcome.score is not None
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = open_data(str(recorded)).total_steps
    assert rows[-1]["environment_steps"] == 0 and rows[-1]["recorded_steps"] >= steps
    assert rows[-1]["replay/items_0"] == steps + open_data(str(recorded)).total_episodes
    assert rows[-1]["learner/log_prob"] < 0


@pytest.mark.slow("daily")
def test_a_run_without_an_environment_reports_losses_and_its_policy_plays_later(recorded, tmp_path):
    from callboard import evaluate

    experiment = experiment_of("bc", tmp_path, env="", actors=0, dataset=str(recorded), max_learner_steps=10)
    assert experiment.env == f"recorded:{recorded}" and not experiment.evaluator
    outcome = run(experiment, "inline")
    assert outcome.exit_code == 0, outcome.error
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["learner/log_prob"] < 0 and "evaluator/return" not in rows[-1]
    assert evaluate(f"{tmp_path}@latest", episodes=2, env="CartPole-v1").mean > 5
    with pytest.raises(CallboardError, match="stands for recorded episodes, and cannot be stepped"):
        evaluate(f"{tmp_path}@latest", episodes=2)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"env": "Acrobot-v1"}, r"does not fit: its observation is float32\(4,\), and .* float32\(6,\)"),
        ({"max_learner_steps": None}, "set max_learner_steps or max_seconds"),
        ({"dataset": ()}, "name a dataset"),
        ({"env": "", "actors": 1}, "actors need an environment: name one with env, or set actors to 0"),
        ({"agent": "impala", "agent_settings": {}}, "impala learns from its own newest episodes alone"),
        ({"dataset": "nowhere"}, "there is no data set 'nowhere'"),
        ({"agent_settings": {"replay.demonstration_share": 0.5}}, "leave agent.replay.demonstration_share out"),
        (
            {"agent_settings": {"replay.demonstration_share": 0.5}, "dataset": (), "actors": 1},
            "demonstration_share is for recorded episodes: name a dataset",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused(recorded, tmp_path, changed, problem):
    settings = {"agent": "bc", "actors": 0, "dataset": str(recorded), "max_learner_steps": 20, **changed}
    with pytest.raises(CallboardError, match=problem):
        run(experiment_of(settings.pop("agent"), tmp_path / "run", **settings), "inline")


def node_processes(run_dir, label):
    """Returns the process of each node of a kind, from its log."""
    for log in sorted((run_dir / "logs").glob(f"{label}-*.log")):
        begun = [line for line in log.read_text().splitlines() if " begins, process " in line]
        if begun:
            yield int(begun[-1].rpartition(" ")[2])


def kill_when(condition, run_dir, label, timeout=120):
    end = time.time() + timeout
    while time.time() < end and not condition():
        time.sleep(0.2)
    assert condition()
    for process in node_processes(run_dir, label):
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(process)], check=False)


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["local", "central"])
@pytest.mark.parametrize("label", ["actor", "recorder"])
def test_episodes_are_whole_and_none_is_written_twice_if_a_node_is_killed(start, tmp_path, inference, label):
    run_dir = tmp_path / "run"
    agent = [
        "--agent.replay.min-size=2000",
        "--agent.replay.samples-per-insert=1",
        "--agent.batch-size=8",
        "--agent.network.hidden-sizes=[4]",
    ]
    options = ["--env=CartPole-v1", "--actors=2", "--envs-per-actor=4", "--record-episodes", "--no-evaluator", *agent]
    started = start("train", "bc", *options, "--max-steps=60000", f"--inference={inference}", f"--run-dir={run_dir}")
    data = RunDirectory(run_dir).recorded / "data"

    def some():
        return (data / "metadata.json").exists() and minari.MinariDataset(str(data)).total_episodes > 100

    kill_when(some, run_dir, label)
    assert minari.MinariDataset(str(data)).total_episodes > 100
    assert started.wait(timeout=400) == 0, started.text()
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    episodes = list(minari.MinariDataset(str(data)))
    assert all(episode.terminations[-1] or episode.truncations[-1] for episode in episodes)
    assert len({episode.observations.tobytes() for episode in episodes}) == len(episodes)
    # What a killed actor had not reported is in the data set, and what it had not sent is not.
    assert abs(len(episodes) - rows[-1]["episodes"]) <= (0 if label == "recorder" else 100)
    assert started.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("label", ["feeder", "replay", "learner"])
def test_learning_from_recorded_episodes_continues_if_a_node_is_killed(start, recorded, tmp_path, label):
    run_dir = tmp_path / "run"
    options = ["--env=CartPole-v1", "--actors=0", f"--dataset={recorded}", "--max-learner-steps=6000"]
    agent = ["--agent.batch-size=8", "--agent.network.hidden-sizes=[4]", "--evaluation-episodes=2"]
    started = start("train", "bc", *options, *agent, "--evaluate-every=2000", f"--run-dir={run_dir}")
    rows = run_dir / "metrics.jsonl"
    kill_when(lambda: rows.exists() and '"learner/loss"' in rows.read_text(), run_dir, label)
    assert started.wait(timeout=400) == 0, started.text()
    assert "reached max_learner_steps" in started.end_line()


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["sac", "apex", "r2d2"])
def test_agents_with_priorities_and_memories_learn_from_recorded_episodes(start, recorded, tmp_path, agent):
    options = ["--env=CartPole-v1", "--actors=0", f"--dataset={recorded}", "--max-learner-steps=60"]
    short = ["--agent.burn-in=2", "--agent.trace-length=8", "--agent.period=5"] if agent == "r2d2" else []
    started = start("train", agent, *options, *short, "--agent.batch-size=8", "--evaluation-episodes=2")
    assert started.wait(timeout=400) == 0, started.text()
    assert "reached max_learner_steps (60 learner steps)" in started.end_line()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "processes"])
@pytest.mark.parametrize("agent", ["sac", "apex", "r2d2"])
def test_a_share_of_each_batch_is_of_demonstrations_while_actors_play(start, recorded, tmp_path, agent, launcher):
    run_dir = tmp_path / "run"
    short = ["--agent.burn-in=2", "--agent.trace-length=8", "--agent.period=5"] if agent == "r2d2" else []
    settings = ["--agent.batch-size=8", "--agent.replay.min-size=20", "--agent.replay.samples-per-insert=1"]
    share = [f"--dataset={recorded}", "--agent.replay.demonstration-share=0.25", "--no-evaluator"]
    options = ["--env=CartPole-v1", "--actors=1", "--envs-per-actor=4", "--max-steps=2000", f"--launcher={launcher}"]
    started = start("train", agent, *options, *short, *settings, *share, f"--run-dir={run_dir}")
    assert started.wait(timeout=400) == 0, started.text()
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["environment_steps"] >= 2000 and rows[-1]["recorded_steps"] > 100
    # As many as without demonstrations.
    items = 2000 / (5 if agent == "r2d2" else 1)
    assert rows[-1]["learner_steps"] == pytest.approx((items - 20) / 8, rel=0.15)


def test_data_that_do_not_fit_are_refused_before_the_run(recorded, tmp_path):
    shutil.copytree(RunDirectory(recorded).recorded, tmp_path / "set-v0")
    with h5py.File(tmp_path / "set-v0" / "data" / "parts" / "00000.hdf5", "a") as part:
        part["3/rewards"][0] = np.nan
    experiment = experiment_of("bc", tmp_path / "run", actors=0, dataset=str(tmp_path / "set-v0"), max_learner_steps=20)
    with pytest.raises(CallboardError, match="episode 3 of the data set .*set-v0: the reward of step 0 is nan"):
        run(experiment, "inline")
    assert not (tmp_path / "run").exists()
