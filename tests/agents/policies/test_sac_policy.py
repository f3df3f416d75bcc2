"""How SAC acts, with Gaussian and with categorical policies."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.policies.sac_policy import SacNetworks
from callboard.agents.sac import Sac
from callboard.data import Timestep
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

DISCRETE_SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.DiscreteArray(4, np.int64))


def spec_of(shape=(2,), low: Any = -1.0, high: Any = 1.0, dtype: Any = np.float32) -> EnvironmentSpec:
    return EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray(shape, dtype, low, high))


SMALL = from_values(
    Sac,
    {
        "network.hidden_sizes": (8,),
        "batch_size": 4,
        "replay.min_size": 10,
        "replay.size": 100,
        "replay.samples_per_insert": 4.0,
    },
)


def timestep_of(batch: int, first: Any = False, observation: Any = None) -> Timestep:
    return Timestep(
        observation=np.zeros((batch, 3), np.float32) if observation is None else observation,
        reward=np.zeros(batch, np.float32),
        discount=np.ones(batch, np.float32),
        first=np.broadcast_to(first, batch),
        last=np.zeros(batch, bool),
    )


def acting(
    agent: Sac, spec: EnvironmentSpec, learning: bool, batch: int = 2, mode: Any = "train"
) -> tuple[SacNetworks, CompiledPolicy]:
    networks = agent.make_networks(layout_of(spec))
    networks.learning.assign(learning)
    policy = agent.make_policy(networks, mode)
    return networks, CompiledPolicy(policy, layout_of(spec), np.arange(batch), seed=1)


def mean_bias(networks: SacNetworks) -> tf.Variable:
    """The bias of the policy's last layer: D means, then D logarithms of standard deviations."""
    return networks.actor_critic.policy.trainable_variables[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("mode", ["train", "evaluate"])
@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        spec_of((), -0.1, 0.3),
        spec_of((1,), 2.0, 7.0, np.float64),
        spec_of((2, 3), [[0.1, -1.0, -2.0], [0.7, 3.0, 0.0]], [[0.3, 1.0, 5.0], [0.7, 1e30, 1e-30]]),
        spec_of((2,), -np.finfo(np.float32).max, np.finfo(np.float32).max),
    ],
    ids=["scalar", "double", "matrix", "huge"],
)
def test_actions_are_of_the_environments_kind_and_within_its_bounds(spec, learning, mode):
    networks, policy = acting(SMALL, spec, learning, batch=50, mode=mode)
    size = networks.actor_critic.bounds.size
    for mean in (-100.0, 0.0, 100.0):
        mean_bias(networks).assign([mean] * size + [2.0] * size)
        action, extras = policy(timestep_of(50))
        assert extras == ()
        assert action.dtype == spec.action.dtype and action.shape == (50, *spec.action.shape)
        for one in action:
            spec.action.validate(one)


@pytest.mark.slow("daily")
def test_actions_are_even_until_learning_begins_and_the_policys_then():
    spec = spec_of((2,), [-1.0, 10.0], [1.0, 20.0])
    networks, policy = acting(SMALL, spec, learning=False, batch=2000)
    mean_bias(networks).assign([1.0, -1.0, -10.0, -10.0])
    unit = (policy(timestep_of(2000))[0] - [0.0, 15.0]) / [1.0, 5.0]
    np.testing.assert_allclose(np.quantile(unit, [0.1, 0.5, 0.9], axis=0).T, [[-0.8, 0.0, 0.8]] * 2, atol=0.08)
    assert abs(np.corrcoef(unit.T)[0, 1]) < 0.1
    networks.learning.assign(True)
    unit = (policy(timestep_of(2000))[0] - [0.0, 15.0]) / [1.0, 5.0]
    np.testing.assert_allclose(unit, np.tile(np.tanh([1.0, -1.0]), (2000, 1)), atol=1e-3)
    assert unit.std() > 0


def test_an_evaluation_is_never_by_chance():
    networks, policy = acting(SMALL, spec_of(), learning=False, mode="evaluate")
    mean_bias(networks).assign([1.0, -1.0, 2.0, 2.0])
    np.testing.assert_allclose(policy(timestep_of(2))[0], np.tile(np.tanh([1.0, -1.0]), (2, 1)), rtol=1e-5)


def test_actors_fetch_the_policy_and_whether_it_learns_but_no_critics():
    networks, policy = acting(SMALL, spec_of(), learning=False)
    fetched = {id(variable) for variable in policy.policy.variables}
    assert fetched == {id(variable) for variable in (*networks.actor_critic.policy.variables, networks.learning)}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("learning", [False, True])
def test_exploratory_actions_are_held_until_an_episode_begins(learning):
    agent = from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3})
    _, policy = acting(agent, spec_of(), learning)
    begins = np.zeros((11, 2), bool)
    begins[0] = True
    begins[5, 1] = begins[6, 1] = True
    rng = np.random.default_rng(0)
    actions = [policy(timestep_of(2, first, rng.normal(size=(2, 3)).astype(np.float32)))[0] for first in begins]
    same = [(a == b).all(axis=-1) for a, b in itertools.pairwise(actions)]
    assert [t for t in range(1, 11) if not same[t - 1][0]] == [3, 6, 9]
    assert [t for t in range(1, 11) if not same[t - 1][1]] == [3, 5, 6, 9]


@pytest.mark.slow("daily")
def test_nothing_is_held_by_default_nor_in_an_evaluation():
    for agent, mode in (
        (from_values(Sac, {"network.hidden_sizes": (8,)}), "train"),
        (from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3}), "evaluate"),
    ):
        _, policy = acting(agent, spec_of(), learning=True, mode=mode)
        assert policy.state == ()
        rng = np.random.default_rng(0)
        actions = [policy(timestep_of(2, False, rng.normal(size=(2, 3)).astype(np.float32)))[0] for _ in range(3)]
        assert not np.array_equal(actions[0], actions[1]) and not np.array_equal(actions[1], actions[2])


@pytest.mark.slow("daily")
def test_an_environment_explores_in_the_same_way_whatever_batch_it_is_in():
    agent = from_values(Sac, {"network.hidden_sizes": (8,)})
    for learning in (False, True):
        policy = agent.make_policy(acting(agent, spec_of(), learning)[0], "train")
        whole, _, _ = policy(timestep_of(4), (), tf.range(4), tf.constant([1, 2]))
        part, _, _ = policy(timestep_of(2), (), tf.constant([3, 1]), tf.constant([1, 2]))
        np.testing.assert_allclose(part, tf.gather(whole, [3, 1]), rtol=1e-5)


def test_a_policy_that_holds_has_a_state_of_actions_that_replay_does_not_keep():
    agent = from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3})
    layout = layout_of(spec_of((2, 2), 0.0, 3.0, np.float64))
    layout = trace_layout(agent, layout, agent.make_networks(layout))
    assert layout.record.action == tf.TensorSpec((2, 2), tf.float64) and layout.record.extras == ()
    assert [leaf.shape for leaf in tree.flatten(layout.state)] == [(4,), ()]
    (table,) = agent.make_replay(layout).tables()
    assert tree.flatten(table.info.signature.state) == []


# With discrete actions.


@pytest.mark.slow("daily")
def test_discrete_actions_are_even_until_learning_begins_and_the_policys_then():
    networks, policy = acting(SMALL, DISCRETE_SPEC, learning=False, batch=4000)
    logits = [0.0, 1.0, -1.0, 0.5]
    mean_bias(networks).assign(logits)
    action, extras = policy(timestep_of(4000))
    assert action.dtype == np.int64 and action.shape == (4000,) and extras == ()
    np.testing.assert_allclose(np.bincount(action) / 4000, 0.25, atol=0.03)
    networks.learning.assign(True)
    np.testing.assert_allclose(np.bincount(policy(timestep_of(4000))[0]) / 4000, tf.nn.softmax(logits), atol=0.03)
    for mode, expected in (("evaluate", {1}), ("sample", {0, 1, 2, 3})):
        networks, policy = acting(SMALL, DISCRETE_SPEC, learning=False, batch=50, mode=mode)
        mean_bias(networks).assign(logits)
        assert set(policy(timestep_of(50))[0].tolist()) == expected


@pytest.mark.slow("daily")
def test_discrete_actions_are_held_and_do_not_depend_on_the_batch():
    agent = from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3})
    _, policy = acting(agent, DISCRETE_SPEC, learning=True, batch=30)
    actions = [policy(timestep_of(30))[0] for _ in range(6)]
    assert [(one == other).all() for one, other in itertools.pairwise(actions)] == [True, True, False, True, True]
    policy = agent.make_policy(acting(SMALL, DISCRETE_SPEC, learning=True)[0], "sample")
    whole, _, _ = policy(timestep_of(30), (), tf.range(30), tf.constant([1, 2]))
    part, _, _ = policy(timestep_of(2), (), tf.constant([3, 1]), tf.constant([1, 2]))
    np.testing.assert_array_equal(part, tf.gather(whole, [3, 1]))


MASKED_SPEC = DISCRETE_SPEC._replace(
    observation={"action_mask": dm_specs.Array((4,), np.int8), "observation": DISCRETE_SPEC.observation}
)


def masked(batch, mask):
    return {"action_mask": np.tile(np.int8(mask), (batch, 1)), "observation": np.zeros((batch, 3), np.float32)}


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("learning", [False, True])
def test_a_masked_action_is_never_taken(learning):
    shown = masked(500, [1, 0, 1, 0])
    for mode in ("train", "sample", "evaluate"):
        networks, policy = acting(SMALL, MASKED_SPEC, learning, batch=500, mode=mode)
        mean_bias(networks).assign([0.0, 9.0, 0.5, 9.0])
        taken = set(policy(timestep_of(500, observation=shown))[0].tolist())
        assert taken == ({2} if mode == "evaluate" else {0, 2})


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("learning", [False, True])
def test_a_held_action_that_becomes_masked_is_replaced(learning):
    agent = from_values(Sac, {"network.hidden_sizes": (8,), "hold": 9})
    _, policy = acting(agent, MASKED_SPEC, learning, batch=100)
    before, _ = policy(timestep_of(100, observation=masked(100, [1, 1, 1, 1])))
    after, _ = policy(timestep_of(100, observation=masked(100, [0, 0, 1, 1])))
    assert set(before.tolist()) == {0, 1, 2, 3} and set(after.tolist()) == {2, 3}
    np.testing.assert_array_equal(after[before >= 2], before[before >= 2])
