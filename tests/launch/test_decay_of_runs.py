"""Rates decay by what is done of a run, however short episodes are and whichever limit ends it."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from callboard import Experiment, Session
from callboard.agents.impala import Impala
from callboard.agents.ppo import Ppo
from callboard.settings.nested_settings import with_values


class OneStep(gym.Env):
    """Episodes of one step, cut off by a time limit: half of the timesteps of a batch are no environment steps."""

    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, True, {}


SETTINGS = {"unroll_length": 8, "batch_size": 8, "optimizer.learning_rate": 1e-3, "optimizer.learning_rate_decay": True}


def experiment(tmp_path, kind, **fields):
    small = {"minibatches": 1, "epochs": 1, "clip_decay": True} if kind is Ppo else {}
    agent = with_values(kind(), {**SETTINGS, **small})
    return Experiment(
        agent,
        env=OneStep,
        run_dir=tmp_path / "run",
        actors=1,
        envs_per_actor=8,
        evaluator=False,
        check_env=False,
        **fields,
    )


@pytest.mark.slow("daily")
def test_rate_and_clipping_range_decay_by_environment_steps(tmp_path):
    with Session(experiment(tmp_path, Ppo, max_steps=1024), launcher="inline") as session:
        for part in (0.25, 0.5, 0.75):
            metrics = session.train(steps=256).metrics
            assert metrics["learner/learning_rate"] == pytest.approx(1e-3 * (1 - part), abs=1.3e-4)
            assert metrics["learner/clip_range"] == pytest.approx(0.2 * (1 - part), abs=0.026)


@pytest.mark.slow("daily")
def test_a_run_that_learner_steps_end_decays_by_them(tmp_path):
    limited = experiment(tmp_path, Ppo, max_learner_steps=8)
    with Session(limited, launcher="inline") as session:
        rates = [session.train(learner_steps=2).metrics["learner/learning_rate"] for _ in range(3)]
    np.testing.assert_allclose(rates, [1e-3 * (1 - done / 8) for done in (1, 3, 5)], rtol=1e-3)


def test_the_part_that_is_done_is_that_of_the_nearest_limit(tmp_path):
    run = experiment(tmp_path, Impala, max_steps=1000, max_learner_steps=50, max_seconds=10)
    assert run.part_done(500, 10, 2.0) == 0.5
    assert run.part_done(500, 30, 2.0) == 0.6
    assert run.part_done(500, 30, 9.0) == 0.9
    assert run.part_done(1100, 30, 9.0) == 1.0


@pytest.mark.slow
def test_several_learners_decay_by_environment_steps_at_the_same_rates(start, tmp_path):
    """Each learner hears at other times how many steps the actors have made."""
    settings = ["--agent.rate-logs", tmp_path, "--agent.batch-size", 8, "--agent.unroll-length", 8]
    nodes = ["--learners", 2, "--actors", 2, "--envs-per-actor", 4, "--evaluator", "false", "--launcher", "processes"]
    run_dir = ["--run-dir", tmp_path / "run"]
    run = start(
        "train", "logged_rates:LoggedRates", "--env", "CartPole-v1", "--max-steps", 6000, *settings, *nodes, *run_dir
    )
    assert run.wait(timeout=240) == 0, run.text()
    logs = [(tmp_path / f"learner-{rank}.txt").read_text().splitlines() for rank in range(2)]
    first, second = (dict(line.split() for line in log) for log in logs)
    common = sorted(first.keys() & second.keys(), key=int)
    assert len(common) > 50 and [first[step] for step in common] == [second[step] for step in common]
    rates = [float(first[step]) for step in common]
    assert rates == sorted(rates, reverse=True) and rates[-1] < 0.2 * rates[0] and len(set(rates)) > 5
