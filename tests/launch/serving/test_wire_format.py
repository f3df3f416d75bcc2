"""The values of an environment in requests, where the door's own tests do not reach."""

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
