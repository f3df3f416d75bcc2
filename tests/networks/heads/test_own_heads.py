"""Heads of policies and critics that a user's functions make."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf
from composed_actions import spec_of
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.actor_critics.actor_critic_factory import actor_critic_networks
from callboard.networks.actor_critics.deterministic_actor_critic import CategoricalCritic, deterministic_actor_critic
from callboard.networks.actor_critics.mpo_networks import GaussianHead
from callboard.networks.actor_critics.shared_encoder import shared_encoder_networks
from callboard.networks.distributions import Categorical, DiagonalGaussian, SquashedGaussian
from callboard.networks.factory import check_network
from callboard.networks.network import Inputs
from callboard.networks.network_settings import ActorCriticSettings
from callboard.specs import EnvironmentSpec

BOX = specs.BoundedArray((2,), np.float32, -1.0, 3.0)
DISCRETE = specs.DiscreteArray(3)
COMPOSED = {"choice": DISCRETE, "numbers": BOX}
IMAGE = specs.BoundedArray((12, 12, 3), np.uint8, 0, 255)
ME = "parts_of_the_user:"


class Both(tf.Module):
    """Outputs a Gaussian, logits, or numbers, made by one layer."""

    def __init__(self, kind, size):
        super().__init__()
        self._kind = kind
        self.layer = tf.keras.layers.Dense(size)

    @property
    def takes_legal(self):
        return self._kind is Categorical

    def __call__(self, features, legal=None):
        outputs = self.layer(features)
        if self._kind is Categorical:
            return Categorical(outputs)
        return tf.tanh(outputs) if self._kind is None else self._kind(*tf.split(outputs, 2, axis=-1))


def squashed(spec, size=4):
    return Both(SquashedGaussian, size)


def diagonal(spec):
    return Both(DiagonalGaussian, 4)


def logits(spec):
    return Both(Categorical, spec.action.num_values)


def unit(spec):
    return Both(None, 2)


def wide_critic(spec, units, outputs=1):
    return tf.keras.Sequential([tf.keras.layers.Dense(units), tf.keras.layers.Dense(outputs)])


def first_row(spec):
    return tf.keras.Sequential([tf.keras.layers.Dense(5), tf.keras.layers.Lambda(lambda x: x[:1])])


def function(spec):
    return lambda features: features


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setitem(sys.modules, "parts_of_the_user", sys.modules[__name__])


ATOMS = functools.partial(deterministic_actor_critic, make_critic=functools.partial(CategoricalCritic, atoms=5))
MPO = functools.partial(ATOMS, make_head=GaussianHead, outputs=DiagonalGaussian)
DRQ = functools.partial(shared_encoder_networks, filters=((4, 3, 2),), image_features=3)


def spec_for(build, action):
    return EnvironmentSpec(IMAGE, action) if build is DRQ else spec_of(action)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build, action, head, outputs",
    [
        (actor_critic_networks, BOX, "squashed", 1),
        (actor_critic_networks, COMPOSED, None, 4),
        (DRQ, DISCRETE, "logits", 3),
        (ATOMS, BOX, "unit", 5),
        (MPO, BOX, "diagonal", 5),
    ],
)
def test_a_policy_and_critics_with_heads_of_the_user_s_own(build, action, head, outputs):
    spec = spec_for(build, action)
    own = {"critic_head": ME + "wide_critic", "critic_head_options": {"units": 7, "outputs": outputs}}
    networks = build(spec, hidden_sizes=(6,), **own, head=None if head is None else ME + head)
    assert head is None or isinstance(networks.policy.head, Both)
    shapes = [tuple(variable.shape) for variable in networks.critic.trainable_variables]
    assert (7, outputs) in shapes and all(6 not in shape for shape in shapes)
    for online, target in zip(networks.critic.variables, networks.target_critic.variables, strict=True):
        np.testing.assert_array_equal(online, target)
    trained = {id(variable) for variable in networks.policy.trainable_variables}
    observation = np.zeros((2, *spec.observation.shape), spec.observation.dtype)
    with tf.GradientTape() as tape:
        policy, _ = networks.policy.step(Inputs(observation), (), np.ones(2, bool))
        loss = sum(tf.reduce_sum(leaf) for leaf in tf.nest.flatten(policy))
    head_variables = networks.policy.head.trainable_variables
    assert {id(variable) for variable in head_variables} <= trained
    assert all(gradient is not None for gradient in tape.gradient(loss, head_variables))


@pytest.mark.parametrize(
    "build, action, own, message",
    [
        (actor_critic_networks, BOX, {"head": "logits2"}, "did you mean 'logits'"),
        (
            actor_critic_networks,
            BOX,
            {"head": "diagonal"},
            "must return a .*SquashedGaussian of .* not DiagonalGaussian",
        ),
        (
            actor_critic_networks,
            BOX,
            {"head": "squashed", "head_options": {"size": 6}},
            r"'mean' of its outputs must have the shape \[N, 2\], and is \[2, 3\]",
        ),
        (actor_critic_networks, COMPOSED, {"head": "squashed"}, "must return a .*SoftParts of features, not Squashed"),
        (MPO, BOX, {"head": "unit"}, "must return a .*DiagonalGaussian of features, not EagerTensor"),
        (ATOMS, BOX, {"head": "diagonal"}, r"its output must have the shape \[N, 2\], and is DiagonalGaussian"),
        (ATOMS, BOX, {"critic_head": "first_row"}, r"must have the shape \[N, 5\], and is \[1, 5\] for N = 2"),
        (
            ATOMS,
            BOX,
            {"critic_head": "wide_critic", "critic_head_options": {"units": 3}},
            r"^critic_head '.*wide_critic' does not fit the critic: its output must have the shape \[N, 5\], and is ",
        ),
        (DRQ, DISCRETE, {"critic_head": "wide_critic"}, "critic_head_options do not fit .*wide_critic: missing a req"),
        (ATOMS, BOX, {"critic_head": "function"}, "^critic_head .* must return a module that maps .*, not function$"),
    ],
)
def test_heads_that_do_not_fit_are_refused_in_one_line(build, action, own, message):
    named = {key: ME + value if isinstance(value, str) else value for key, value in own.items()}
    with pytest.raises(CallboardError, match=message) as caught:
        build(spec_for(build, action), hidden_sizes=(), **named)
    assert "\n" not in str(caught.value)


def test_heads_are_checked_before_they_are_made():
    settings = {"hidden_sizes": (), "activation": "relu"}
    with pytest.raises(CallboardError, match="critic_head_options do not fit .*wide_critic: missing a required"):
        check_network(spec_of(BOX), ActorCriticSettings(**settings, critic_head=ME + "wide_critic"))
    unused = ActorCriticSettings(**settings, critic_head_options={"units": 3})
    assert unused.problem.startswith("critic_head_options are for a critic_head package.module:factory")
