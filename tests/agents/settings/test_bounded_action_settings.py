"""Finite bounds in place of those that an environment leaves infinite."""

import numpy as np
import pytest
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.fast_function import eager_functions
from callboard.agents.policies.acting import CompiledPolicy
from callboard.agents.registry import agent_class
from callboard.agents.settings.shared_settings import BoundedActionSettings
from callboard.data import Timestep
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

HALF = dm_specs.BoundedArray((2,), np.float32, [-np.inf, 0.5], [1.0, np.inf])
SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), HALF)


def test_only_infinite_bounds_are_replaced():
    action = {"move": HALF, "jump": dm_specs.DiscreteArray(2)}
    limited = BoundedActionSettings(action_limit=4.0).limited(SPEC._replace(action=action)).action
    assert limited["move"].minimum.tolist() == [-4.0, 0.5] and limited["move"].maximum.tolist() == [1.0, 4.0]
    assert limited["jump"] is action["jump"]
    assert BoundedActionSettings().limited(SPEC) is SPEC
    with pytest.raises(CallboardError, match="^agent.action_limit 0.25 lies outside of the finite bounds"):
        BoundedActionSettings(action_limit=0.25).limited(SPEC)
    with pytest.raises(CallboardError, match="^agent.action_limit is for numbers, and these actions are choices"):
        choice = dm_specs.BoundedArray((), np.int32, 0, 1)
        BoundedActionSettings(action_limit=4.0).limited(SPEC._replace(action=choice))


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ["sac", "td3", "dmpo"])
def test_actions_are_scaled_to_the_limit(name):
    small = {"network.hidden_sizes": (4,), "batch_size": 8}
    layout = layout_of(SPEC, envs_per_actor=64)
    with pytest.raises(CallboardError, match="^[a-z0-9]+ scales .* set agent.action_limit"):
        from_values(agent_class(name), small).check(layout)
    agent = from_values(agent_class(name), {**small, "action_limit": 4.0})
    nothing, never = np.zeros(64, np.float32), np.zeros(64, bool)
    timestep = Timestep(np.zeros((64, 3), np.float32), nothing, nothing + 1, ~never, never)
    with eager_functions():
        networks = agent.make_networks(layout)
        policy = CompiledPolicy(agent.make_policy(networks, "train"), layout, np.arange(64), seed=1)
        action, _ = policy(timestep)
    assert (action >= [-4, 0.5]).all() and (action <= [1, 4]).all() and (action.std(axis=0) > 0.2).all()
