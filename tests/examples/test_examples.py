"""The examples do what they describe, from the root of the repository."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from callboard import environments
from callboard.agents import agent_class
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import read_experiment
from callboard.launch.run import run
from callboard.settings.named_objects import import_object
from callboard.transitions import valid_transitions

ROOT = pathlib.Path(__file__).resolve().parents[2]
REINFORCE = "examples.reinforce:Reinforce"
CORRIDOR = "examples.corridor:Corridor"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    """As the command does it: modules are looked for where the user stands."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def rows(run_dir: pathlib.Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def train(*arguments: str, run_dir: pathlib.Path) -> list[dict[str, float]]:
    """Trains by the command, and gives the metrics of its evaluations."""
    command = [sys.executable, "-m", "callboard.cli.command", "train", *arguments, "--run-dir", str(run_dir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return [row for row in rows(run_dir) if "evaluator/return" in row]


def test_everything_that_docs_and_examples_name_can_be_named():
    texts = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*")]
    text = "\n".join(path.read_text() for path in texts if path.suffix in (".md", ".py", ".yaml"))
    names = set(re.findall(r"\b(?:callboard\.)?examples\.\w+:\w+", text))
    assert len(names) > 8
    for name in sorted(names):
        assert any(_is_accepted(kind, name) for kind in ("a function", "environment", "agent")), name


def _is_accepted(kind, name):
    try:
        import_object(kind, name)
    except CallboardError as error:
        assert "refused" in str(error)
        return False
    return True


@pytest.mark.slow
def test_reinforce_runs_to_its_limit_and_leaves_a_run_that_can_be_read_again(tmp_path):
    agent = agent_class(REINFORCE)(unroll_length=8, batch_size=8)
    experiment = Experiment(
        agent=agent,
        env="CartPole-v1",
        actors=2,
        envs_per_actor=4,
        max_steps=3000,
        evaluate_every=2000,
        evaluation_episodes=4,
        evaluation_envs=2,
        run_dir=tmp_path / "run",
    )
    outcome = run(experiment, "inline")
    assert outcome.exit_code == 0, outcome.error
    last = rows(tmp_path / "run")[-1]
    assert last["environment_steps"] >= 3000
    # Each learner step takes 64 transitions; 16 sequences may still be on their way, and some timesteps are resets.
    assert last["learner_steps"] >= (3000 - 16 * 8) // 64
    assert last["learner/gradient_norm"] > 0
    assert read_experiment(tmp_path / "run") == experiment


def test_reinforce_returns_end_where_experience_ends():
    """One column to each kind of end, worked out by hand with a discount of 1/2 and rewards of 1, 2, 4."""
    returns = sys.modules[agent_class(REINFORCE).__module__].returns
    value = np.array([[10.0, 20.0, 30.0, 40.0]]).T.repeat(4, axis=1)
    first, last = np.zeros((4, 4), bool), np.zeros((4, 4), bool)
    discount = np.ones((3, 4))
    # Column 0 continues.  Column 1 terminates in its second step, and begins anew in the third timestep.
    discount[1, 1], first[2, 1] = 0.0, True
    # Column 2 runs out of time at its third observation, where the action is ignored.
    last[2, 2], first[3, 2] = True, True
    # Column 3 is cut off in its second step: the observation that ended it is lost.
    first[2, 3] = True
    reward = np.array([[1.0, 2.0, 4.0]]).T.repeat(4, axis=1)
    valid_t = valid_transitions(first, last, discount)
    found = returns(tf.constant(value), tf.constant(reward), tf.constant(0.5 * discount), valid_t)
    expected = np.array(
        [
            [1 + (2 + (4 + 40 / 2) / 2) / 2, 2 + (4 + 40 / 2) / 2, 4 + 40 / 2],
            [1 + 2 / 2, 2, 4 + 40 / 2],
            [1 + (2 + 30 / 2) / 2, 2 + 30 / 2, 30],
            [1 + 20 / 2, 20, 4 + 40 / 2],
        ]
    ).T
    np.testing.assert_allclose(found, expected)


def test_reinforce_refuses_what_it_cannot_do():
    agent = agent_class(REINFORCE)
    with pytest.raises(CallboardError, match="needs one discrete action"):
        check_experiment(Experiment(agent=agent(), env="Pendulum-v1"))
    with pytest.raises(CallboardError, match="set agent.batch_size to"):
        check_experiment(Experiment(agent=agent(batch_size=24), env="CartPole-v1"))


def test_corridor_ends_with_the_treasure_the_pit_or_the_time():
    batch = environments.make(CORRIDOR, 3, [1, 2, 3], {"length": 5})
    timestep = batch.reset()
    to_treasure = (timestep.observation[:, 1] > 0).astype(np.int32)
    # Environment 0 walks to the treasure, 1 to the pit, and 2 to and fro.
    batch.step(np.array([to_treasure[0], 1 - to_treasure[1], 1]))
    timestep = batch.step(np.array([to_treasure[0], 1 - to_treasure[1], 0]))
    assert timestep.reward.tolist() == [1, -1, 0] and timestep.discount.tolist() == [0, 0, 1]
    assert timestep.last.tolist() == [True, True, False]
    for time in range(3, 21):
        timestep = batch.step(np.array([0, 0, time % 2]))
    # 20 steps are all there are: the episode ends, but does not terminate.
    assert timestep.last[2] and timestep.discount[2] == 1 and timestep.reward[2] == 0


def test_corridor_depends_on_its_seed_alone():
    def signs(seed):
        batch = environments.make(CORRIDOR, 1, [seed])
        return [float(batch.reset().observation[0, 1]) for _ in range(32)]

    assert signs(5) == signs(5) and signs(5) != signs(6)
    assert set(signs(5)) == {-1.0, 1.0}


@pytest.mark.score
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["processes", "threads", "inline"])
def test_reinforce_learns_cartpole(launcher, tmp_path):
    settings = ("--env", "CartPole-v1", "--max-steps", "300000", "--stop-return", "200")
    evaluations = train(REINFORCE, *settings, "--launcher", launcher, run_dir=tmp_path / "run")
    assert evaluations[-1]["evaluator/return"] >= 200


@pytest.mark.score
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["processes", "inline"])
def test_impala_finds_the_treasure(launcher, tmp_path):
    settings = {"optimizer": "{name: adam, epsilon: 1.6e-3, learning_rate: 5e-3}", "unroll-length": "10"}
    options = [f"--agent.{name}={value}" for name, value in {**settings, "batch-size": "16"}.items()]
    evaluations = train(
        *("impala", "--env", CORRIDOR, "--max-steps", "100000", "--evaluate-every", "5000", "--stop-return", "1"),
        *options,
        *("--launcher", launcher),
        run_dir=tmp_path / "run",
    )
    assert evaluations[-1]["evaluator/return"] == 1
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.slow("daily")
def test_the_returns_of_a_run_are_plotted(tmp_path):
    run_dir, picture = tmp_path / "run", tmp_path / "returns.png"
    run_dir.mkdir()
    row = {"environment_steps": 5, "actor/episode_return": 1.0, "evaluator/return": 2.0}
    (run_dir / "metrics.jsonl").write_text(f"{json.dumps({'environment_steps': 1})}\n{json.dumps(row)}\n")
    program = [sys.executable, ROOT / "examples" / "plot_run.py", run_dir, "--output", picture]
    subprocess.run(program, check=True, timeout=60)
    assert picture.read_bytes().startswith(b"\x89PNG")
