"""Actions of several parts with every agent that takes them: masks, and an action of one part as itself."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from composed_actions import ACTIONS, SEEN, random_mask, spec_of
from dm_env import specs as dm_specs
from small_worlds import layout_of
from update_on_replicas import BATCH, random_sample

from callboard.action_masks import choice_sizes
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.registry import agent_class
from callboard.data import Timestep
from callboard.networks.actions.action_parts import ActionParts
from callboard.networks.distributions import Categorical
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec, MultiDiscreteArray

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
POLICIES = {
    "impala": ("impala", {**_ON_POLICY, "network.core": "lstm", "network.lstm_size": 4}, 5),
    "appo": ("appo", _ON_POLICY, 5),
    "a2c": ("a2c", _ON_POLICY, 5),
    "ppo": ("ppo", _PPO, 5),
}
VALUES = {
    "apex": ("apex", _Q, 2),
    "apex, one stream": ("apex", {**_Q, "network.dueling": False}, 2),
    "r2d2": ("r2d2", {**_Q, "burn_in": 1, "trace_length": 5, "period": 3, "network.lstm_size": 4}, 6),
}
AUTOREGRESSIVE = {"ppo, autoregressive": ("ppo", {**_PPO, "network.autoregressive": True}, 5)}

FAST = ("impala", "ppo", "ppo, autoregressive", "apex", "r2d2")


pytestmark = pytest.mark.usefixtures("eagerly")


def cases(*tables):
    merged = {name: case for table in tables for name, case in table.items()}
    # Those of other agents have the same heads, losses and policies.
    parameters = [
        pytest.param(*case, id=name, marks=() if name in FAST else pytest.mark.slow) for name, case in merged.items()
    ]
    return pytest.mark.parametrize("name, settings, length", parameters)


@pytest.mark.slow("daily")
@cases(POLICIES, AUTOREGRESSIVE, VALUES)
def test_a_masked_value_of_a_choice_is_never_taken(name, settings, length):
    kind = "nest" if "unroll_length" in settings else "multi-discrete"
    agent = from_values(agent_class(name), {**settings, **({} if kind == "nest" else {"evaluation_epsilon": 1.0})})
    action, rng, rows = ACTIONS[kind], np.random.default_rng(1), 100
    spec, parts = spec_of(action, masked=True), ActionParts(action)
    mask = random_mask(rng, parts.sizes, rows)
    layout = layout_of(spec, envs_per_actor=rows)
    networks = agent.make_networks(layout)
    seen = rng.normal(size=(rows, 3)).astype(np.float32)
    nothing, never = np.zeros(rows, np.float32), np.zeros(rows, bool)
    timestep = Timestep({"action_mask": mask, "observation": seen}, nothing, nothing + 1, ~never, never)
    starts = np.cumsum(parts.sizes) - parts.sizes
    for mode in agent.modes():
        policy = CompiledPolicy(agent.make_policy(networks, mode), layout, np.arange(rows), seed=1)
        taken, _ = policy(timestep)
        tree.assert_same_structure(taken, action)
        choices = parts.choices(taken).numpy()
        assert np.take_along_axis(mask, starts + choices, axis=1).all()
        if mode != "evaluate" or kind != "nest":
            assert all(len(set(column)) > 1 for column in choices.T)


def updated(agent, spec, sample, weights):
    """The metrics, priorities and weights after an update that begins with given weights."""
    layout = layout_of(spec, envs_per_actor=BATCH)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    for variable, value in zip(networks.variables, weights or [], strict=bool(weights)):
        variable.assign(np.reshape(value, variable.shape))
    before = [variable.numpy() for variable in networks.variables]
    update = learner.step(iter([tree.map_structure(tf.constant, sample(trace_layout(agent, layout, networks)))]))
    return update, before, [variable.numpy() for variable in networks.variables]


def one_part(sample, wrap):
    """The same sample where the action is one of a single part."""
    record, state, extras = sample.record, sample.state, sample.record.extras
    if hasattr(extras, "logits"):
        log_prob = Categorical(extras.logits).log_prob(record.action).numpy() if len(extras.logits) else extras.log_prob
        extras = extras._replace(logits=(), log_prob=log_prob)
    if hasattr(extras, "q"):
        extras = extras._replace(q=extras.q[..., np.newaxis, :])
        state = state._replace(previous_action=wrap(state.previous_action))
    if hasattr(extras, "best"):
        extras = extras._replace(value=extras.value[..., np.newaxis])
    return sample._replace(record=record._replace(action=wrap(record.action), extras=extras), state=state)


def check_same(agent, single, composed, wrap, length):
    kept = {}

    def sample(layout):
        kept["sample"] = random_sample(layout, length)
        return kept["sample"]

    update, before, after = updated(agent, single, sample, None)
    same, _, same_after = updated(agent, composed, lambda layout: one_part(kept["sample"], wrap), before)
    for key, value in update.metrics.items():
        np.testing.assert_allclose(same.metrics[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
    if update.priorities is not None:
        np.testing.assert_allclose(same.priorities.priority, update.priorities.priority, rtol=1e-4, atol=1e-6)
    for own, other in zip(after, same_after, strict=True):
        np.testing.assert_allclose(own.ravel(), other.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow("daily")
@cases(POLICIES, VALUES)
def test_one_choice_of_an_array_is_learned_as_a_discrete_action(name, settings, length):
    agent = from_values(agent_class(name), settings)
    single = EnvironmentSpec(SEEN, dm_specs.DiscreteArray(3))
    composed = EnvironmentSpec(SEEN, MultiDiscreteArray([3]))
    check_same(agent, single, composed, lambda action: action[..., np.newaxis], length)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@cases(POLICIES)
def test_one_array_in_a_tuple_is_learned_as_itself(name, settings, length):
    agent = from_values(agent_class(name), settings)
    box = dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [3.0, 5.0])
    check_same(agent, EnvironmentSpec(SEEN, box), EnvironmentSpec(SEEN, (box,)), lambda action: (action,), length)


def test_initial_priorities_are_mean_errors_over_the_choices():
    assert choice_sizes(ACTIONS["multi-discrete"]).tolist() == [2, 4, 3]
    agent = from_values(agent_class("apex"), _Q)
    layout = layout_of(spec_of(ACTIONS["multi-discrete"]), envs_per_actor=BATCH)
    record = random_sample(trace_layout(agent, layout, agent.make_networks(layout)), 3).record
    record = record._replace(last=np.zeros_like(record.last[:3]), discount=np.ones_like(record.discount[:2]))
    found = agent.first_priority(record)
    for b in range(BATCH):
        target = record.reward[0, b] + 0.99 * record.reward[1, b] + 0.99**2 * record.extras.best[2, b]
        expected = np.mean([abs(target - value) for value in record.extras.value[0, b]])
        np.testing.assert_allclose(found[b], expected, rtol=1e-4)
