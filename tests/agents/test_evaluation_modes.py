"""How policies act in evaluations: by their best actions, by sampled ones, or with some random ones."""

import numpy as np
import pytest
import tensorflow as tf
from slow_cases import slow_but

from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.policies.acting import CompiledPolicy
from callboard.agents.ppo import Ppo
from callboard.agents.r2d2 import R2D2
from callboard.agents.sac import Sac
from callboard.data import Layout
from callboard.environments import make, spec
from callboard.settings.nested_settings import from_values

BATCH = 8


def actions(agent, mode, env="CartPole-v1", seed=1):
    """`[T, B]` or `[T, B, D]`, of the same network after one and the same observation."""
    tf.keras.utils.set_random_seed(0)
    layout = Layout(spec(env), envs_per_actor=BATCH, actors=1, shards=1, replicas=1, seed=1, max_steps=1000)
    networks = agent.make_networks(layout)
    policy = CompiledPolicy(agent.make_policy(networks, mode), layout, np.arange(BATCH), seed=seed)
    environment = make(env, BATCH, seeds=[3] * BATCH)
    timestep = environment.reset()
    environment.close()
    return np.stack([policy(timestep)[0] for _ in range(10)])


def is_constant(values):
    return bool((values == values[:1]).all())


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent, env",
    [
        (from_values(Impala, {"network.hidden_sizes": (8,)}), "CartPole-v1"),
        pytest.param(from_values(Ppo, {"network.hidden_sizes": (8,)}), "CartPole-v1", marks=pytest.mark.slow),
        pytest.param(from_values(Ppo, {"network.hidden_sizes": (8,)}), "Pendulum-v1", marks=pytest.mark.slow),
        (from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3}), "Pendulum-v1"),
    ],
)
def test_actions_are_sampled_where_that_is_wanted(agent, env):
    assert agent.modes() == ("train", "evaluate", "sample")
    assert is_constant(actions(agent, "evaluate", env))
    sampled = actions(agent, "sample", env)
    assert not is_constant(sampled)
    assert len(np.unique(sampled[0], axis=0)) > 1


@pytest.mark.slow("daily")
@pytest.mark.parametrize("agent", slow_but([Apex, R2D2], Apex))
def test_a_rate_of_random_actions(agent):
    assert agent().modes() == ("train", "evaluate")
    for epsilon, alike in ((0.0, True), (0.5, False)):
        made = from_values(agent, {"network.hidden_sizes": (8,), "evaluation_epsilon": epsilon})
        first, second = (actions(made, "evaluate", seed=seed) for seed in (1, 2))
        assert (first == second).all() == alike
