"""What messages propose for episodes that do not end: it is accepted, and ends them."""

import shlex

import gymnasium
import numpy as np
import pytest

from callboard import environments
from callboard.environments.checks.episode_limits import episode_limit_advice, unending_advice
from callboard.launch.experiments.settings import parse_experiment

WRAPPED = "truncate them in the environment, or, if it is a gymnasium.Env, with --env-wrappers "


class Endless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Limited(Endless):
    def __init__(self, max_episode_steps=0):
        self.limit, self.steps = max_episode_steps, 0

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, False, self.limit == self.steps, {}


@pytest.mark.parametrize(
    ("env", "options", "advice"),
    [
        (Endless, {}, f"{WRAPPED}'[{{name: TimeLimit, max_episode_steps: 1000}}]'"),
        (
            Endless,
            {"env_wrappers": ["ClipReward"]},
            f"{WRAPPED}'[ClipReward, {{name: TimeLimit, max_episode_steps: 1000}}]'",
        ),
        (Limited, {}, "limit their length with --env-options.max_episode_steps 1000"),
        ("Pendulum-v1", {}, "limit their length with --env-options.max_episode_steps 1000"),
        ("MinAtar/Breakout-v1", {}, "limit their length with --env-options.max_episode_steps 1000"),
        ("ALE/Pong-v5", {}, "limit their length with --env-options.max_num_frames_per_episode 1000"),
        (
            "pettingzoo:mpe.simple_spread_v3",
            {},
            "limit their length, in most environments of PettingZoo with --env-options.max_cycles 1000",
        ),
        ("procgen:coinrun", {}, "truncate them in the environment"),
    ],
)
def test_what_limits_episodes_depends_on_the_environment(env, options, advice):
    assert episode_limit_advice(env, options) == advice
    _, _, proposed = advice.partition("--")
    if proposed:
        wrappers = ["--env-wrappers", str(list(options["env_wrappers"]))] if options else []
        given = shlex.split(f"--{proposed}")
        name = "CartPole-v1" if isinstance(env, type) else env
        changed = parse_experiment("ppo", {"env": name}, [*wrappers, *given])
        environments.check(env, changed.options_of_env)


@pytest.mark.parametrize("env", [Endless, Limited])
def test_episodes_end_with_what_is_proposed(env):
    given = shlex.split(f"--{episode_limit_advice(env, {}).partition('--')[2]}".replace("1000", "3"))
    options = parse_experiment("ppo", {"env": "CartPole-v1"}, given).options_of_env
    environment = environments.make(env, 1, [0], options)
    environment.reset()
    assert [bool(environment.step(np.zeros(1, np.int64)).last[0]) for _ in range(3)] == [False, False, True]


def test_the_limit_that_episodes_have_is_named():
    assert unending_advice("CartPole-v1", {}, 300) == "they end at the latest with max_episode_steps = 500"
    of_id = {"max_episode_steps": None}
    assert unending_advice("CartPole-v1", of_id, 300) == "they end at the latest with max_episode_steps = 500"
    assert unending_advice("CartPole-v1", {"max_episode_steps": -1}, 300).startswith("if they may never end, limit")
    long = {"max_episode_steps": 100_000}
    assert unending_advice("CartPole-v1", long, 600) == "they end at the latest with max_episode_steps = 100,000"
    # Nothing ended there.
    assert unending_advice("CartPole-v1", {}, 600).startswith("if they may never end, limit their length with --env-")
    assert unending_advice(Endless, {}, 300).startswith(f"if they may never end, {WRAPPED}")
    assert unending_advice([{"env": "CartPole-v1"}], {}, 300).startswith("if they may never end, ")


def test_episodes_of_atari_end_after_half_an_hour():
    pytest.importorskip("ale_py")
    assert unending_advice("ALE/Pong-v5", {}, 300) == "they end at the latest with max_num_frames_per_episode = 108,000"
