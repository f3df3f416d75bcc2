"""Teams: what belongs to each member, and what is no team."""

import numpy as np
import pytest
from dm_env import specs as dm_specs
from team_worlds import ACTIONS, random_observation, team_spec

from callboard.errors import CallboardError
from callboard.networks.teams.team import Team, check_team
from callboard.specs import EnvironmentSpec

OWN = dm_specs.Array((2,), np.float32)
TWO, THREE = dm_specs.DiscreteArray(2), dm_specs.DiscreteArray(3)


def test_every_member_has_its_parts():
    team = Team(team_spec())
    observation = random_observation(np.random.default_rng(0), (4, 5))
    assert team.members == tuple(ACTIONS) and team.num_actions == 3 and team.state_size == 4
    present = observation["present"] > 0
    np.testing.assert_array_equal(team.present(observation), present)
    legal = team.legal(observation).numpy()
    assert legal.shape == (4, 5, 3, 3)
    np.testing.assert_array_equal(legal[:, :, 0][present[..., 0]], observation["left"]["action_mask"][present[..., 0]])
    # A member with two actions never has a third, and an absent one has the first alone.
    np.testing.assert_array_equal(legal[:, :, 1][present[..., 1]], [[True, True, False]] * present[..., 1].sum())
    np.testing.assert_array_equal(legal[~present], [[True, False, False]] * (~present).sum())
    for own, member in zip(team.observations(observation), ACTIONS, strict=True):
        part = observation[member]
        assert own is (part["observation"] if isinstance(part, dict) else part)
    merged = {key: value for key, value in random_observation(np.random.default_rng(0), (5,)).items()}
    np.testing.assert_array_equal(team.state(merged, "float32"), merged["state"])


def test_the_state_is_all_observations_if_there_is_none():
    team = Team(team_spec(state=False))
    observation = random_observation(np.random.default_rng(0), (5,), state=False)
    own = [observation["left"]["observation"], observation["middle"], observation["right"]["observation"]]
    assert team.state_size == 9 and not team.has_state
    np.testing.assert_array_equal(team.state(observation, "float32"), np.hstack([*own, observation["present"]]))


def test_without_the_part_present_all_are():
    observation = random_observation(np.random.default_rng(0), (2, 3), state=False)
    del observation["present"]
    team = Team(team_spec(state=False, present=False))
    assert team.present(observation).numpy().all() and team.present(observation).shape == (2, 3, 3)
    assert team.state_size == 6


def test_actions_are_split_and_joined():
    team = Team(team_spec())
    actions = np.random.default_rng(0).integers(2, size=(4, 5, 3))
    joined = team.joined(actions)
    assert list(joined) == list(ACTIONS)
    np.testing.assert_array_equal(joined["middle"], actions[..., 1])
    np.testing.assert_array_equal(team.split(joined), actions)


def test_a_single_agent_is_a_team_of_one():
    spec = EnvironmentSpec({"a": OWN, "action_mask": dm_specs.Array((3,), np.int8)}, THREE)
    check_team("qmix", spec, True)
    team = Team(spec)
    observation = {"a": np.ones((4, 2), np.float32), "action_mask": np.array([[0, 1, 1]] * 4, np.int8)}
    assert team.members == ("",) and not team.has_state
    np.testing.assert_array_equal(team.legal(observation), [[[False, True, True]]] * 4)
    assert team.joined(np.array([[2], [1]])).numpy().tolist() == [2, 1]
    assert team.split(np.array([2, 1])).numpy().tolist() == [[2], [1]]
    np.testing.assert_array_equal(team.state(observation, "float32"), np.ones((4, 2)))


BOX = dm_specs.BoundedArray((2,), np.float32, -1, 1)
OTHER = dm_specs.Array((3,), np.float32)
TEAM = {"a": TWO, "b": TWO}


@pytest.mark.parametrize(
    "observation, action, problem",
    [
        (OWN, BOX, "qmix needs a dictionary with one discrete action for each member of a team, .* is float32"),
        ({"a": OWN, "b": OWN}, {"a": TWO, "b": BOX}, "one discrete action for each member"),
        ({"a": OWN}, {}, "one discrete action for each member"),
        (OWN, TEAM, "the observation has no part 'a'"),
        ({"a": OWN}, TEAM, "the observation has no part 'b'"),
        ({"a": OWN, "b": OWN, "present": OTHER}, TEAM, "'present' needs one element for each of the 2 members"),
        ({"a": OWN, "b": OTHER}, TEAM, "set agent.network.shared to false"),
        ({"a": {"observation": OWN, "action_mask": OTHER}, "b": OWN}, TEAM, "'action_mask' has 3 elements"),
    ],
)
def test_what_is_no_team_is_refused_in_one_line(observation, action, problem):
    with pytest.raises(CallboardError, match=problem) as caught:
        check_team("qmix", EnvironmentSpec(observation, action), shared=True)
    assert "\n" not in str(caught.value)


def test_members_with_networks_of_their_own_may_observe_different_things():
    check_team("qmix", EnvironmentSpec({"a": OWN, "b": OTHER}, {"a": TWO, "b": THREE}), shared=False)


def test_all_members_see_what_belongs_to_none():
    spec = EnvironmentSpec({"a": OWN, "b": OWN, "map": OTHER, "state": OWN}, TEAM)
    check_team("qmix", spec, shared=True)
    team = Team(spec)
    assert team.observation_specs == [{"own": OWN, "common": {"map": OTHER}}] * 2
    assert Team(spec._replace(observation={"a": OWN, "b": OWN, "map": OTHER})).state_size == 7
    observation = {"a": np.ones((4, 2)), "b": np.zeros((4, 2)), "map": np.ones((4, 3)), "state": np.ones((4, 2))}
    assert [part["own"] is observation[name] for part, name in zip(team.observations(observation), "ab", strict=True)]
