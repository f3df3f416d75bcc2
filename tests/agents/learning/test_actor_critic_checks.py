"""What agents with separate critics refuse."""

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard.agents.learning.actor_critic_checks import check_networks
from callboard.errors import CallboardError
from callboard.networks.network_settings import ActorCriticSettings
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((2,), np.float32, -1, 1))


def network(torso: str = "auto") -> ActorCriticSettings:
    return ActorCriticSettings(hidden_sizes=(), activation="relu", torso=torso)


def test_networks_that_fit_pass():
    check_networks("td3", SPEC, network(), 1)


@pytest.mark.parametrize(
    "torso, frame_stack, message",
    [
        ("resnet8", 1, "^td3 does not train .* set agent.network.torso to impala or nature, not resnet8$"),
        ("impala", 1, "torso 'impala' is for images"),
        ("auto", 4, "frame_stack"),
    ],
)
def test_networks_that_do_not_fit_are_refused(torso, frame_stack, message):
    with pytest.raises(CallboardError, match=message):
        check_networks("td3", SPEC, network(torso), frame_stack)
