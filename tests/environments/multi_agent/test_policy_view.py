"""How policies see environments, whether they have one agent or several."""

import numpy as np
from scripted_agents import ScriptedAgents, batches_of, seen

from callboard.data import Timestep
from callboard.environments.multi_agent.joint_batch import JointBatch
from callboard.environments.multi_agent.policy_view import OneAgentView

EPISODE = [{"a": seen(1), "b": seen(11)}, {"a": seen(2, 5, "terminated"), "b": seen(12, 6, "terminated")}]


def test_the_only_policy_sees_and_does_what_the_environments_show_and_take():
    view = OneAgentView()
    timestep = Timestep(np.ones((2, 3)), np.zeros(2), np.ones(2), np.zeros(2, bool), np.zeros(2, bool))
    assert view.split(timestep) == {"": timestep} and view.split(timestep)[""] is timestep
    action = np.arange(2)
    assert view.join({"": action}) is action
    assert view.in_use("") and view.executed_by == {} and view.take_episodes() == []


def test_a_batch_of_several_agents_is_seen_by_policy():
    mapping = {"a": "red", "b": "blue"}
    batch = JointBatch(batches_of(ScriptedAgents(EPISODE), mapping=mapping, policies=("red", "blue")), ("red", "blue"))
    seen_by = batch.split(batch.reset())
    assert (seen_by["red"].observation[0], seen_by["blue"].observation[0]) == (1, 11)
    actions = batch.join({name: np.zeros(1, np.int32) for name in seen_by})
    following = batch.split(batch.step(actions))
    assert (following["red"].reward[0], following["blue"].reward[0]) == (5, 6)
    assert batch.in_use("red") and batch.executed_by == {"red": 1, "blue": 1}
    assert [episode.returns for episode in batch.take_episodes()] == [{"a": 5, "b": 6}]
