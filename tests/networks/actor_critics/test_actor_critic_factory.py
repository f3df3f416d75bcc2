"""Networks for SAC by the kind of the environment's action."""

import pytest
from composed_actions import ACTIONS, BOX, spec_of
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.actor_critics.actor_critic import Critics, DiscreteCritics
from callboard.networks.actor_critics.actor_critic_factory import actor_critic_networks
from callboard.networks.actor_critics.composed_actor_critic import AdditiveCritics, ComposedActorCritic

BOUNDED = specs.BoundedArray((2,), "float32", -1.0, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "action, critic, bounded",
    [
        (specs.DiscreteArray(3), DiscreteCritics, False),
        (BOUNDED, Critics, True),
        (ACTIONS["multi-discrete"], AdditiveCritics, False),
        ({"choice": specs.DiscreteArray(3), "numbers": BOUNDED}, AdditiveCritics, False),
    ],
)
def test_critics_and_bounds_are_those_of_the_action(action, critic, bounded):
    networks = actor_critic_networks(spec_of(action), hidden_sizes=(4,), temperature=0.5)
    assert type(networks.critic) is type(networks.target_critic) is critic
    assert (networks.bounds is not None) == bounded
    assert isinstance(networks, ComposedActorCritic) == (critic is AdditiveCritics)
    assert float(networks.alpha) == pytest.approx(0.5)


@pytest.mark.parametrize("action", [ACTIONS["nest"], specs.Array((2,), "float32"), BOX])
def test_numbers_without_finite_bounds_are_refused(action):
    with pytest.raises(CallboardError, match="bounds"):
        actor_critic_networks(spec_of(action))
