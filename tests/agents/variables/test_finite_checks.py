"""Numbers that are not finite are found where they arise, and named as what they are."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs

from callboard.agents import agent_class
from callboard.agents.policies.acting import CompiledPolicy
from callboard.agents.policies.batched_policy import BatchedPolicy, InferenceRequest
from callboard.agents.variables.finite_checks import (
    LossCheck,
    NotFiniteError,
    check_finite,
    check_policy,
    check_saved_weights,
)
from callboard.agents.variables.weights import Unpacking, pack_weights
from callboard.data import Layout, Timestep, Update
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields, from_values
from callboard.specs import EnvironmentSpec


def output(observation, reward=(0.0, 0.0)):
    return Timestep(observation, np.array(reward, np.float32), np.ones(2), np.zeros(2, bool), np.zeros(2, bool))


@pytest.mark.parametrize(
    "spoilt, where",
    [
        (output(np.array([[1.0, 2.0], [3.0, np.nan]])), "observation of environment 1 in the batch is NaN"),
        (output(np.array([[np.inf, 2.0], [3.0, 4.0]])), "observation of environment 0 in the batch is infinite"),
        (
            output({"camera": np.zeros((2, 3)), "arm": (np.zeros(2), np.array([[0.0], [-np.inf]], np.float32))}),
            "observation.arm.1 of environment 1 in the batch is infinite",
        ),
        (
            output(np.zeros((2, 2)))._replace(discount=np.array([1.0, np.nan])),
            "discount of environment 1 in the batch is NaN",
        ),
        (output(np.zeros((2, 2)), reward=(np.nan, 0.0)), "reward of environment 0 in the batch is NaN"),
        (
            output(np.zeros((2, 2)), reward=(0.0, -np.inf))._replace(discount=np.zeros(2)),
            "reward of environment 1 in the batch is infinite",
        ),
        (
            output(np.zeros((2, 2)))._replace(discount=np.array([np.inf, 1.0])),
            "discount of environment 0 in the batch is infinite",
        ),
    ],
)
def test_what_an_environment_shows_must_be_finite(spoilt, where):
    with pytest.raises(CallboardError) as caught:
        check_finite(spoilt)
    assert str(caught.value).startswith(f"the {where} as float")
    assert "fix the environment" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_integers_and_large_numbers_are_fine():
    check_finite(output(np.zeros(2), reward=(3e38, 3e38)))
    check_finite(
        output({"count": np.full(2, np.iinfo(np.int64).max), "flag": np.ones(2, bool), "far": np.full(2, 3e38)})
    )


def update(loss, gradient_norm=1.0):
    values = {"loss": loss, "gradient_norm": gradient_norm, "importance_weight": np.inf}
    metrics = {name: tf.constant(value) for name, value in values.items()}
    return Update(metrics, finite=("loss", "gradient_norm"))


@pytest.mark.parametrize(
    "updates, message",
    [
        ([update(1.0), update(2.0)], None),
        ([update(1.0), update(np.nan), update(np.nan)], "the loss is NaN at learner step 2 (agent mine): lower"),
        ([update(np.inf), update(np.nan)], "the loss is infinite at learner step 1 (agent mine): lower"),
        ([update(1.0), update(1.0, np.nan), update(np.nan, np.nan)], "the gradient norm is NaN at learner step 2"),
        ([], None),
    ],
)
def test_the_first_update_that_is_not_finite_is_named(updates, message):
    losses = LossCheck()
    for step, one in enumerate(updates, start=1):
        losses.add(step, one)
    if message is None:
        losses.check()
        return
    with pytest.raises(NotFiniteError) as caught:
        losses.check()
    text = str(caught.value.advised("mine", len(updates), "kept"))
    assert text.startswith(message) and text.endswith("; kept")


def test_a_weight_that_is_not_finite_is_named():
    variables = [
        tf.Variable([1.0, 3e38], name="bias"),
        # Its bytes would be those of a NaN.
        tf.Variable([-1, 0x7FC00000], name="count"),
        tf.Variable([True, False, True]),
        tf.Variable([[2.0]], name="kernel", dtype=tf.float64),
    ]
    unpacking = Unpacking(variables)

    def check():
        unpacking.check_finite(pack_weights(variable.numpy() for variable in variables))

    check()
    for variable, value, message in (
        (variables[0], np.inf, "bias:0 is infinite"),
        (variables[3], np.nan, "kernel:0 is NaN"),
    ):
        before = variable.numpy()
        variable.assign(np.full(variable.shape, value))
        with pytest.raises(NotFiniteError, match=f"the weight {message}"):
            check()
        variable.assign(before)


def test_a_checkpoint_that_is_not_finite_is_named(tmp_path):
    layer = tf.Module()
    layer.kernel = tf.Variable([1.0, 2.0])
    layer.steps = tf.Variable(3, dtype=tf.int64)
    for value in (2.0, np.nan):
        layer.kernel.assign([1.0, value])
        tf.train.Checkpoint(layer=layer).write(str(tmp_path / "saved"))
        if np.isfinite(value):
            check_saved_weights(str(tmp_path / "saved"))
    with pytest.raises(NotFiniteError, match="the weight layer/kernel is NaN"):
        check_saved_weights(str(tmp_path / "saved"))


def test_a_policy_is_blamed_for_what_it_gives():
    action, slots = np.zeros((2, 1), np.float32), np.array([8, 9])
    check_policy(action, (), slots)
    check_policy(np.zeros(2, np.int32), {"logits": action}, slots)
    for given, name in (((action * np.nan, ()), "action"), ((action, {"value": np.array([0.0, -np.inf])}), "value")):
        with pytest.raises(CallboardError) as caught:
            check_policy(*given, slots)
        kind, slot = ("NaN", 8) if name == "action" else ("infinite", 9)
        assert str(caught.value).startswith(
            f"the policy's output '{name}' is {kind} for the environment in slot {slot}: "
        )


SMALL = {"network.hidden_sizes": (8,), "network.stream_size": 0, "network.head_sizes": ()}
DISCRETE, CONTINUOUS = dm_specs.DiscreteArray(4), dm_specs.BoundedArray((2,), np.float32, -1.0, 1.0)
POLICIES = [
    ("impala", DISCRETE, "evaluate"),
    ("ppo", DISCRETE, "evaluate"),
    ("ppo", DISCRETE, "train"),
    ("ppo", CONTINUOUS, "evaluate"),
    ("apex", DISCRETE, "evaluate"),
    ("r2d2", DISCRETE, "evaluate"),
    ("sac", CONTINUOUS, "evaluate"),
    ("sac", CONTINUOUS, "train"),
]


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name, action, mode", POLICIES)
def test_every_policy_that_acts_with_weights_that_are_not_finite_is_blamed(name, action, mode):
    kind = agent_class(name)
    agent = from_values(kind, {name: value for name, value in SMALL.items() if name in declared_fields(kind)})
    spec = EnvironmentSpec(dm_specs.Array((4,), np.float32), action)
    layout = Layout(spec=spec, envs_per_actor=2, actors=2, shards=1, replicas=1, seed=1, max_steps=1000)
    networks = agent.make_networks(layout)
    for variable in networks.variables:
        filler = np.nan if variable.dtype.is_floating else 1
        variable.assign(tf.cast(tf.fill(variable.shape, filler), variable.dtype))
    policy = agent.make_policy(networks, mode)
    shown = output(np.zeros((2, 4), np.float32))._replace(discount=np.ones(2, np.float32))
    slots = np.arange(2, 4, dtype=np.int32)
    with pytest.raises(CallboardError, match="the policy's output .* is NaN for the environment in slot 2: "):
        CompiledPolicy(policy, layout, slots, seed=1)(shown)
    if mode == "train":
        merged = BatchedPolicy(policy, layout)
        request = InferenceRequest(shown, merged.initial_state(2), slots, np.zeros(2, np.int32))
        with pytest.raises(CallboardError, match="the policy's output .* is NaN for the environment in slot 2: "):
            merged([request, request._replace(slots=slots - 2)])
