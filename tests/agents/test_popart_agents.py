"""PopArt in the agents that learn a value: losses do not depend on the scale of rewards, and settings are checked."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from ppo_samples import CONTINUOUS, DISCRETE, layout_of, random_sample

from callboard.agents.a2c import A2C
from callboard.agents.a3c import A3C
from callboard.agents.impala import Impala, ImpalaExtras
from callboard.agents.learning.gradient_step import divided
from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.networks.network_settings import PopArtSettings
from callboard.specs import EnvironmentSpec

SIZES: Any = {"unroll_length": 5, "batch_size": 4}
ON = PopArtSettings(enabled=True, rate=0.5)


def with_network(agent, **settings):
    return dataclasses.replace(agent, network=dataclasses.replace(agent.network, **settings))


def losses(agent, spec, factor, shared):
    """The metrics of a first loss with rewards times `factor`, from a network whose values are 0."""
    agent = with_network(agent, popart=ON, shared=shared, hidden_sizes=(8,))
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout_of(spec))
    head = getattr(networks, "network", networks).popart
    for variable in head.trainable_variables:
        if "kernel" in variable.name and variable.shape[-1] == 1:
            variable.assign(tf.zeros_like(variable))
    rng = np.random.default_rng(0)
    sample = random_sample(rng, Ppo(**SIZES), spec)
    record = sample.record._replace(reward=np.float32(factor) * sample.record.reward)
    if isinstance(agent, Impala):
        logits = rng.normal(size=(5, 4, 3)).astype(np.float32)
        sample = sample._replace(record=record._replace(extras=ImpalaExtras(logits)), state=())
        output = agent.loss(networks, sample)
    elif isinstance(agent, Ppo):
        sample = sample._replace(record=record)
        values = tf.zeros((6, 4))
        rollout = agent.rollout(networks, [sample], [values])
        output = agent.loss(networks, rollout, tf.constant(0.2))
    else:
        output = agent.loss(networks, sample._replace(record=record, state=()))
    return {name: float(value) for name, value in divided(output.metrics).items() if name.endswith("_loss")}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "agent, spec",
    [
        (Impala(**SIZES, normalize_rewards=False), DISCRETE),
        pytest.param(A2C(**SIZES, normalize_rewards=False), DISCRETE, marks=pytest.mark.slow),
        (Ppo(**SIZES, minibatches=1, normalize_rewards=False, normalize_advantages=False), CONTINUOUS),
    ],
)
def test_losses_do_not_depend_on_the_scale_of_rewards(agent, spec, shared):
    small, large = (losses(agent, spec, factor, shared) for factor in (1.0, 1000.0))
    assert len(small) == 2 and all(small.values())
    for name, value in small.items():
        np.testing.assert_allclose(large[name], value, rtol=1e-3)


def test_a3c_has_no_popart():
    with pytest.raises(CallboardError, match="^a3c computes gradients in actors, .* or use a2c$"):
        with_network(A3C(), popart=ON).check(layout_of(DISCRETE))


def test_the_task_must_be_a_discrete_part_of_the_observation():
    parts = {"position": dm_specs.Array((2,), np.float32), "level": dm_specs.DiscreteArray(4)}
    spec = EnvironmentSpec(parts, dm_specs.DiscreteArray(3))
    agent = with_network(
        Impala(**SIZES, normalize_rewards=False), popart=dataclasses.replace(ON, task="level"), hidden_sizes=(8,)
    )
    agent.check(layout_of(spec))
    assert agent.make_networks(layout_of(spec)).popart.statistics[0].shape == (4,)
    for task, known in (("position", "choose from level"), ("stage", "choose from level")):
        wrong = with_network(agent, popart=dataclasses.replace(ON, task=task))
        with pytest.raises(CallboardError, match=f"^agent.network.popart.task must be .* not '{task}': {known}$"):
            wrong.check(layout_of(spec))
