"""Environments with several agents as one batch, against values worked out by hand."""

import numpy as np
import pytest
from scripted_agents import ScriptedAgents, batches_of, seen

from callboard.environments.multi_agent.joint_batch import JointBatch

EPISODE = [
    {"a": seen(1), "b": seen(11)},
    {"a": seen(2, 5), "b": seen(12, 6)},
    {"a": seen(3, 7, "terminated"), "b": seen(13, 8)},
    {"b": seen(14, 9, "truncated")},
]
SHORT = [{"a": seen(4), "b": seen(41)}, {"a": seen(5, 1, "terminated"), "b": seen(42, 2, "terminated")}]


def joint(*environments, counted=("red", "blue"), mapping=None):
    mapping = mapping or {"a": "red", "b": "blue"}
    return JointBatch(batches_of(*environments, mapping=mapping, policies=("red", "blue")), counted)


def zeros(batch):
    played = batch.batches
    return {name: np.zeros(played.batch_size * len(slots.agents), np.int32) for name, slots in played.slots.items()}


def played(batch, count):
    timesteps = [batch.reset()]
    for _ in range(count):
        timesteps.append(batch.step(zeros(batch)))
    return timesteps


def columns(timesteps, env=0):
    return [(one.reward[env], one.discount[env], bool(one.first[env]), bool(one.last[env])) for one in timesteps]


def test_the_reward_is_the_sum_over_the_agents_and_the_episode_that_of_the_environment():
    assert columns(played(joint(ScriptedAgents(EPISODE, SHORT)), 5)) == [
        (0, 1, True, False),
        (11, 1, False, False),
        # One agent terminates, and the environment continues.
        (15, 1, False, False),
        (9, 1, False, True),
        (0, 1, True, False),
        (3, 0, False, True),
    ]


@pytest.mark.parametrize(("counted", "rewards"), [(("red",), [0, 5, 7, 0]), (("blue",), [0, 6, 8, 9]), ((), [0] * 4)])
def test_only_the_rewards_of_some_policies_may_count(counted, rewards):
    timesteps = played(joint(ScriptedAgents(EPISODE), counted=counted), 3)
    assert [one.reward[0] for one in timesteps] == rewards
    assert [one.last[0] for one in timesteps] == [False, False, False, True]


def test_environments_are_independent():
    timesteps = played(joint(ScriptedAgents(EPISODE, SHORT), ScriptedAgents(SHORT, EPISODE)), 4)
    assert columns(timesteps, env=1) == [
        (0, 1, True, False),
        (3, 0, False, True),
        (0, 1, True, False),
        (11, 1, False, False),
        (15, 1, False, False),
    ]
    assert [row[2] for row in columns(timesteps)] == [True, False, False, False, True]


def test_observations_and_actions_are_nests_by_policy():
    environment = ScriptedAgents(EPISODE)
    batch = joint(environment)
    timestep = batch.reset()
    assert set(batch.spec.observation) == set(batch.spec.action) == {"red", "blue"}
    assert {policy: leaf.tolist() for policy, leaf in timestep.observation.items()} == {"red": [[1]], "blue": [[11]]}
    assert batch.by_policy["red"].observation is timestep.observation["red"]
    batch.step({"red": np.array([3]), "blue": np.array([4])})
    assert environment.taken == [{"a": 3, "b": 4}]
    assert batch.batch_size == 1 and batch.environments == (environment,)


def test_one_policy_for_all_agents():
    batch = JointBatch(batches_of(ScriptedAgents(EPISODE), ScriptedAgents(SHORT, SHORT)), ("p",))
    timesteps = played(batch, 1)
    assert timesteps[1].reward.tolist() == [11, 3] and timesteps[1].observation["p"].shape == (4, 1)


def test_infos_are_those_of_the_agents_and_their_means():
    batch = joint(ScriptedAgents(EPISODE, SHORT))
    assert batch.infos is None and batch.infos_of(batch) == {}
    batch.keep_infos()
    found = []
    batch.reset()
    found.append(batch.infos)
    for _ in range(4):
        batch.step(zeros(batch))
        found.append(batch.infos)
    assert batch.infos_of(batch) is batch.batches.infos
    assert found[0].begun == [{"a/n": 1, "b/n": 11, "n": 6}] and found[0].followed == [{}]
    assert found[1].followed == [{"a/n": 2, "b/n": 12, "n": 7}] and found[1].begun == [{}]
    # Only one agent is there.
    assert found[3].followed == [{"b/n": 14, "n": 14}]
    assert found[4].begun == [{"a/n": 4, "b/n": 41, "n": 22.5}] and found[4].followed == [{}]


def test_what_is_no_number_has_no_mean():
    episode = [{"a": seen(1)._replace(info={"name": "x", "won": np.True_, "list": [1]}), "b": seen(2)}]
    batch = joint(ScriptedAgents([*episode, {"a": seen(1, 0, "truncated")}]))
    batch.keep_infos()
    batch.reset()
    (info,) = batch.infos.begun
    assert info == {"a/name": "x", "a/won": True, "a/list": [1], "won": 1.0, "b/n": 2, "n": 2.0}


def test_episodes_tasks_and_the_end():
    environment = ScriptedAgents(EPISODE, SHORT)
    batch = joint(environment)
    played(batch, 5)
    first, second = batch.take_episodes()
    assert (first.length, first.returns, first.policies) == (3, {"a": 12, "b": 23}, {"a": "red", "b": "blue"})
    assert (second.length, second.returns) == (1, {"a": 1, "b": 2}) and batch.take_episodes() == []
    batch.set_task({"level": 2})
    assert environment.tasks == [{"level": 2}]
    assert batch.frames_per_second == 5 and batch.render().shape == (4, 6, 3)
    batch.close()
    assert environment.closed == 1
