"""The values of an environment in requests, where the door's own tests do not reach."""

import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments.batches import encoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.errors import CallboardError
from callboard.launch.serving.wire_format import WireFormat


def test_a_mask_must_allow_an_action_before_the_last_observation():
    seen = spaces.Dict({"place": spaces.Box(-1, 1, (1,)), "action_mask": spaces.MultiBinary(2)})
    wire = WireFormat(
        encoding.EnvironmentEncoding(observation_encoding(seen), action_encoding(spaces.Discrete(2))).spec()
    )
    rest = memoryview(b"")
    assert wire.observation({"place": [0.5], "action_mask": [0, 1]}, rest)["action_mask"].tolist() == [[0, 1]]
    nothing = {"place": [0.5], "action_mask": [0, 0]}
    with pytest.raises(CallboardError, match="^the 'action_mask' allows nothing: end the episode"):
        wire.observation(nothing, rest)
    assert wire.observation(nothing, rest, last=True)["action_mask"].tolist() == [[0, 0]]


def test_a_mask_is_of_0_and_1_also_in_the_last_observation():
    seen = spaces.Dict({"place": spaces.Box(-1, 1, (1,)), "action_mask": spaces.Box(0, 9, (2,), np.int8)})
    wire = WireFormat(
        encoding.EnvironmentEncoding(observation_encoding(seen), action_encoding(spaces.Discrete(2))).spec()
    )
    for last in (False, True):
        with pytest.raises(CallboardError, match="^an action mask contains 5: let it be 1"):
            wire.observation({"place": [0.5], "action_mask": [0, 5]}, memoryview(b""), last=last)


def test_an_action_that_the_client_chooses_is_one_that_the_mask_allows():
    seen = spaces.Dict({"place": spaces.Box(-1, 1, (1,)), "action_mask": spaces.MultiBinary(5)})
    taken = spaces.Dict({"force": spaces.Box(-1, 1, (1,)), "turn": spaces.MultiDiscrete([2, 3], start=[1, 1])})
    wire = WireFormat(encoding.EnvironmentEncoding(observation_encoding(seen), action_encoding(taken)).spec())
    rest = memoryview(b"")
    observation = wire.observation({"place": [0.5], "action_mask": [0, 1, 1, 1, 0]}, rest)
    read = wire.action({"force": [0.5], "turn": [2, 1]}, rest, observation)
    assert read["turn"].tolist() == [[1, 0]]
    for turn in ([1, 1], [2, 3]):
        with pytest.raises(CallboardError) as caught:
            wire.action({"force": [0.5], "turn": turn}, rest, observation)
        assert str(caught.value) == (
            f"the action at 'turn' is {turn}, which the 'action_mask' of the observation forbids: choose one that it "
            "allows"
        )
    assert wire.action({"force": [0.5], "turn": [1, 3]}, rest, None)["turn"].tolist() == [[0, 2]]


def test_a_part_that_the_policy_does_not_know_is_refused():
    space = spaces.Dict(own=spaces.Dict({"1": spaces.Discrete(3)}))
    wire = WireFormat(encoding.EnvironmentEncoding(observation_encoding(space), action_encoding(space)).spec())
    rest = memoryview(b"")
    given = {"own": {"1": 2, "state": {"raw": 5}}}
    for name, read in (("observation", wire.observation), ("action", lambda *given: wire.action(*given, None))):
        with pytest.raises(CallboardError, match=f"^the {name} at 'own' has the part 'state', which the policy does"):
            read(given, rest)
        assert read({"own": {"1": 2}}, rest)["own"]["1"].tolist() == [2]
