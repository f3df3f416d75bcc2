"""Action masks with every agent for discrete actions: in acting, learning and targets."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import layout_of
from update_on_replicas import BATCH, random_sample

from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.registry import agent_class
from callboard.data import Timestep
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SEEN = dm_specs.Array((3,), np.float32)
MASKED = EnvironmentSpec(
    {"action_mask": dm_specs.BoundedArray((3,), np.int8, 0, 1), "observation": SEEN}, dm_specs.DiscreteArray(3)
)
TWO_ACTIONS = EnvironmentSpec(SEEN, dm_specs.DiscreteArray(2))
KEPT = [0, 2]
"""The actions that are legal in `MASKED`, whose numbers in `TWO_ACTIONS` are 0 and 1."""

_ON_POLICY = {
    "normalize_rewards": False,
    "unroll_length": 5,
    "batch_size": BATCH,
    "network.hidden_sizes": (4,),
    "network.head_sizes": (4,),
}
_PPO = {**_ON_POLICY, "epochs": 1, "minibatches": 1}
_Q = {
    "normalize_rewards": False,
    "batch_size": BATCH,
    "updates_per_call": 1,
    "network.hidden_sizes": (4,),
    "network.stream_size": 4,
    "epsilon": 1.0,
    "n_step": 2,
}
CASES = {
    "impala": ("impala", {**_ON_POLICY, "network.core": "lstm", "network.lstm_size": 4}, 5),
    "appo": ("appo", _ON_POLICY, 5),
    "a2c": ("a2c", _ON_POLICY, 5),
    "ppo": ("ppo", _PPO, 5),
    "ppo, separate": ("ppo", {**_PPO, "network.shared": False}, 5),
    "apex": ("apex", _Q, 2),
    "apex, one stream": ("apex", {**_Q, "network.dueling": False}, 2),
    "apex, categorical": ("apex", {**_Q, "distribution": "categorical", "atoms": 5}, 2),
    "apex, quantile": ("apex", {**_Q, "distribution": "quantile", "atoms": 5}, 2),
    "r2d2": ("r2d2", {**_Q, "burn_in": 1, "trace_length": 5, "period": 3, "network.lstm_size": 4}, 6),
}


pytestmark = pytest.mark.usefixtures("eagerly")


FAST = ("impala", "ppo, separate", "apex", "apex, quantile", "r2d2")
each_case = pytest.mark.parametrize(
    "name, settings, length",
    [pytest.param(*case, id=name, marks=() if name in FAST else pytest.mark.slow) for name, case in CASES.items()],
)


@pytest.mark.slow("daily")
@each_case
def test_a_masked_action_is_never_taken(name, settings, length):
    always_random = {"evaluation_epsilon": 1.0} if "epsilon" in settings else {}
    agent = from_values(agent_class(name), {**settings, **always_random})
    rng, rows = np.random.default_rng(1), 200
    mask = rng.integers(2, size=(rows, 3)).astype(np.int8)
    mask[np.arange(rows), rng.integers(3, size=rows)] = 1
    layout = layout_of(MASKED, envs_per_actor=rows)
    networks = agent.make_networks(layout)
    observation = {"action_mask": mask, "observation": rng.normal(size=(rows, 3)).astype(np.float32)}
    nothing, never = np.zeros(rows, np.float32), np.zeros(rows, bool)
    timestep = Timestep(observation, nothing, nothing + 1, ~never, never)
    for mode in agent.modes():
        policy = CompiledPolicy(agent.make_policy(networks, mode), layout, np.arange(rows), seed=1)
        taken = np.stack([policy(timestep)[0] for _ in range(3)])
        assert mask[np.arange(rows), taken].all()
        if mode != "evaluate":
            assert all((taken[:, mask[:, action] == 1] == action).any() for action in range(3))


def made(agent, spec):
    """A learner, its networks and the layout, all as in the other world but for the columns of the action."""
    layout = layout_of(spec, envs_per_actor=BATCH)
    networks = agent.make_networks(layout)
    strategy = tf.distribute.get_strategy()
    return agent.make_learner(networks, strategy, layout), networks, trace_layout(agent, layout, networks)


def output_shape(variable, actions):
    """The shape `[..., A, N]` of a layer that outputs N numbers for each of the actions; None if it is another one."""
    *inputs, outputs = variable.shape
    return (*inputs, actions, outputs // actions) if "output" in variable.name and outputs % actions == 0 else None


def without_masked(array, axis):
    return np.take(array, KEPT, axis)


def samples(masked_layout, length):
    """A batch in which action 1 is always masked, and the same without that action."""
    sample = tree.map_structure(np.array, random_sample(masked_layout, length))
    record = sample.record
    record.observation["action_mask"][:] = [1, 0, 1]
    record.action[record.action == 1] = 2
    extras = record.extras
    for field in ("logits", "q"):
        if hasattr(extras, field):
            getattr(extras, field)[..., 1] = -1e9
            extras = extras._replace(**{field: without_masked(getattr(extras, field), -1)})
    seen, action = record.observation["observation"], (record.action // 2).astype(np.int32)
    state = sample.state
    if hasattr(state, "previous_action"):
        state.previous_action[state.previous_action == 1] = 2
        state = state._replace(previous_action=(state.previous_action // 2).astype(np.int32))
    return sample, sample._replace(record=record._replace(observation=seen, action=action, extras=extras), state=state)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, settings, length",
    [
        pytest.param(*case, id=name, marks=() if name in ("ppo", "apex") else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
def test_learning_is_as_if_the_masked_action_did_not_exist(name, settings, length):
    # The previous action is an input of as many numbers as there are actions.
    blind = {"network.previous_inputs": False} if name == "r2d2" else {}
    agent = from_values(agent_class(name), {**settings, **blind})
    learner, networks, layout = made(agent, MASKED)
    other, others, _ = made(agent, TWO_ACTIONS)
    for variable, smaller in zip(networks.variables, others.variables, strict=True):
        shape = output_shape(variable, 3) if variable.shape != smaller.shape else None
        value = variable if shape is None else without_masked(np.reshape(variable, shape), -2)
        smaller.assign(np.reshape(value, smaller.shape))
    before = [variable.numpy() for variable in networks.variables]
    sample, smaller_sample = samples(layout, length)
    batches = tree.map_structure(tf.constant, (sample, smaller_sample))
    update, same = learner.step(iter(batches[:1])), other.step(iter(batches[1:]))
    for key, value in same.metrics.items():
        np.testing.assert_allclose(update.metrics[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
    if same.priorities is not None:
        np.testing.assert_allclose(update.priorities.priority, same.priorities.priority, rtol=1e-4, atol=1e-6)
    changed = 0
    for variable, old, smaller in zip(networks.variables, before, others.variables, strict=True):
        if variable.shape == smaller.shape:
            np.testing.assert_allclose(variable, smaller, rtol=1e-4, atol=1e-5)
            continue
        shape = output_shape(variable, 3)
        new, old = np.reshape(variable, shape), np.reshape(old, shape)
        np.testing.assert_allclose(without_masked(new, -2).ravel(), np.ravel(smaller), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(new[..., 1, :], old[..., 1, :])
        changed += (without_masked(new, -2) != without_masked(old, -2)).any()
    assert changed
