"""The agent protocol: ranges are checked when an agent is made, and what an agent must have."""

import dataclasses

import pytest

from callboard.agents.agent import Agent
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.errors import CallboardError
from callboard.settings.setting_types import PositiveInt

METHODS = ("check", "make_networks", "make_policy", "make_replay", "make_learner")


@dataclasses.dataclass(frozen=True)
class Smallest(Agent):
    """An agent that does nothing."""

    size: PositiveInt = 2
    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=0.1, epsilon=1e-8, max_gradient_norm=None)

    def check(self, layout):
        pass

    def make_networks(self, layout):
        pass

    def make_policy(self, networks, mode):
        pass

    def make_replay(self, layout):
        pass

    def make_learner(self, networks, strategy, layout):
        pass


def test_a_hyperparameter_out_of_range_is_refused_when_the_agent_is_made():
    with pytest.raises(CallboardError, match="^agent.size must be a whole number of at least 1, not 0$"):
        Smallest(size=0)
    with pytest.raises(CallboardError, match="^agent.size must be a whole number of at least 1, not -1$"):
        dataclasses.replace(Smallest(), size=-1)


def test_ranges_of_nested_settings_are_checked_too():
    optimizer = dataclasses.replace(Smallest().optimizer, learning_rate=0.0)
    with pytest.raises(
        CallboardError, match="^agent.optimizer.learning_rate must be a number above 0 or a schedule .*, not 0.0$"
    ):
        Smallest(optimizer=optimizer)


def test_an_agent_explores_and_is_evaluated_unless_it_says_more():
    assert Smallest().modes() == ("train", "evaluate")


@pytest.mark.parametrize("missing", METHODS)
def test_an_agent_without_one_of_the_methods_cannot_be_made(missing):
    methods = {name: getattr(Smallest, name) for name in METHODS if name != missing}
    with pytest.raises(TypeError, match=f"abstract method {missing}$"):
        type("Incomplete", (Agent,), methods)()
