"""QMIX's policy: masks, absent members, memory and exploration of each member."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from slow_cases import slow_but
from small_worlds import layout_of
from team_worlds import ACTIONS, random_observation, small, team_spec

from callboard.agents.policies.acting import CompiledPolicy
from callboard.agents.policies.batched_policy import BatchedPolicy, InferenceRequest
from callboard.data import Timestep
from callboard.specs import without_part

BATCH = 5


def timestep_of(observation: Any, first: Any = None) -> Timestep:
    batch = len(observation["present"])
    zeros, none = np.zeros(batch, np.float32), np.zeros(batch, bool)
    return Timestep(observation, zeros, zeros + 1, none if first is None else first, none)


def networks_of(agent: Any, envs: int = BATCH) -> tuple[Any, Any]:
    layout = layout_of(team_spec(), envs_per_actor=envs)
    networks = agent.make_networks(layout)
    for index, variable in enumerate(networks.online.variables):
        variable.assign(np.random.default_rng(index).normal(size=variable.shape))
    return networks, layout


def policy_of(agent: Any, mode: Any, envs: int = BATCH) -> tuple[Any, Any]:
    networks, layout = networks_of(agent, envs)
    return agent.make_policy(networks, mode), layout


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "mode, shared",
    slow_but(itertools.product(["train", "evaluate"], [True, False]), ("train", False), ("evaluate", True)),
)
def test_masks_are_obeyed_and_absent_members_take_action_0(mode, shared):
    policy, layout = policy_of(small(epsilon=0.5, epsilon_alpha=0.0, **{"network.shared": shared}), mode)
    act = CompiledPolicy(policy, layout, np.arange(BATCH), seed=1)
    rng = np.random.default_rng(0)
    taken = []
    for number in range(60):
        observation = random_observation(rng, (BATCH,))
        action, _ = act(timestep_of(observation, np.full(BATCH, number == 0)))
        assert action.keys() == ACTIONS.keys()
        for index, (member, count) in enumerate(ACTIONS.items()):
            present, part = observation["present"][:, index] > 0, observation[member]
            mask = part["action_mask"] if isinstance(part, dict) else np.ones((BATCH, count))
            assert np.all(mask[np.arange(BATCH), action[member]][present])
            assert not action[member][~present].any()
            assert action[member].dtype == np.int32 and action[member].max() < count
            taken.append(action[member][present])
    assert set(np.concatenate(taken)) == {0, 1, 2}


@pytest.mark.slow
def test_members_explore_each_by_itself():
    agent = small(epsilon=0.6, epsilon_alpha=1.0)
    networks, layout = networks_of(agent, envs=2)
    act, greedy_act = (
        CompiledPolicy(agent.make_policy(networks, mode), layout, np.arange(2), seed=1)
        for mode in ("train", "evaluate")
    )
    observation = random_observation(np.random.default_rng(3), (2,))
    for part in observation.values():
        if isinstance(part, dict):
            part["action_mask"][:] = 1
    observation["present"][:] = 1
    first = np.ones(2, bool)
    greedy, _ = greedy_act(timestep_of(observation, first))
    differs = np.array(
        [[act(timestep_of(observation, first))[0][member] != greedy[member] for member in ACTIONS] for _ in range(600)]
    )
    rates = np.array([0.6, 0.36])
    expected = np.array([rates * (1 - 1 / count) for count in ACTIONS.values()])
    np.testing.assert_allclose(differs.mean(axis=0), expected, atol=0.08)
    assert abs(np.corrcoef(differs[:, 0, 0], differs[:, 2, 0])[0, 1]) < 0.15


@pytest.mark.slow("daily")
def test_a_member_that_was_absent_begins_anew():
    agent = small()
    policy, _ = policy_of(agent, "evaluate", envs=1)

    def values(presence: list[list[int]]) -> np.ndarray:
        rng = np.random.default_rng(2)
        state = policy.initial_state(1)
        for number, present in enumerate(presence):
            observation = random_observation(rng, (1,))
            observation["present"] = np.array([present], np.float32)
            timestep = timestep_of(observation, np.array([number == 0]))
            _, extras, state = policy(timestep, state, tf.zeros(1, tf.int32), tf.constant([1, 1]))
        return extras.value.numpy()[0]

    always, away = values([[1, 1, 1]] * 3), values([[1, 1, 1], [1, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(always[[0, 2]], away[[0, 2]])
    assert always[1] != away[1]
    # What it did before does not matter.
    other = values([[1, 0, 1], [1, 0, 1], [1, 1, 1]])
    assert other[1] == away[1]


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_it_acts_without_the_state_and_its_weights_do_not_include_the_mixer():
    agent = small()
    policy, layout = policy_of(agent, "evaluate")
    spec = agent.acting_spec(layout.spec)
    assert "state" not in spec.observation and "state" in layout.spec.observation
    assert agent.acting_spec(team_spec(state=False)) == team_spec(state=False)
    observation = random_observation(np.random.default_rng(0), (BATCH,))
    act = CompiledPolicy(policy, layout, np.arange(BATCH), seed=1)
    without = CompiledPolicy(policy, layout._replace(spec=spec), np.arange(BATCH), seed=1)
    first = np.ones(BATCH, bool)
    action, _ = act(timestep_of(observation, first))
    del observation["state"]
    alone, _ = without(timestep_of(observation, first))
    tree.map_structure(np.testing.assert_array_equal, action, alone)
    assert without_part(layout.spec, "state") == spec
    networks = agent.make_networks(layout)
    acting = agent.make_policy(networks, "train").variables
    assert len(acting) == len(networks.online.network.variables) + 1


@pytest.mark.usefixtures("eagerly")
def test_several_actors_act_together_as_alone():
    policy, layout = policy_of(small(epsilon=0.5), "train", envs=2)
    layout = layout._replace(actors=2)
    merged = BatchedPolicy(policy, layout)
    requests, expected = [], []
    for actor in range(2):
        slots = np.arange(2 * actor, 2 * actor + 2, dtype=np.int32)
        observation = random_observation(np.random.default_rng(actor), (2,))
        timestep = timestep_of(observation, np.ones(2, bool))
        tensors = tree.map_structure(tf.constant, timestep)
        seed = np.array([actor, 7], np.int32)
        state = merged.initial_state(2)
        requests.append(InferenceRequest(timestep, state, slots, seed))
        expected.append(policy(tensors, state, tf.constant(slots), tf.constant(seed)))
    for result, wanted in zip(merged(requests), expected, strict=True):
        for found, one in zip(result, wanted, strict=True):
            tree.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, one)
