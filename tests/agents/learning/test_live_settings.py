"""Settings that change while an agent learns."""

import dataclasses

import pytest
import tensorflow as tf

from callboard.agents.agent_names import AGENTS
from callboard.agents.impala import Impala
from callboard.agents.learning.live_settings import LiveSettings, live_changes
from callboard.agents.learning.optimizers import make_optimizer
from callboard.agents.registry import agent_class
from callboard.agents.sac import Sac
from callboard.agents.schedules import Schedule
from callboard.errors import CallboardError
from callboard.settings.nested_settings import values_of, with_values


def test_the_copy_follows_changes_and_the_agent_does_not():
    agent = with_values(Impala(), {"entropy_cost": 0.5, "optimizer.learning_rate": 0.25})
    live = LiveSettings(agent)
    scaled = tf.function(lambda value: live.agent.entropy_cost * value)
    assert float(scaled(2.0)) == 1.0
    live.change({"entropy_cost": 2.0})
    assert float(scaled(2.0)) == 4.0 and agent.entropy_cost == 0.5
    assert live.agent.baseline_cost == agent.baseline_cost


def test_a_decaying_learning_rate_follows_changes():
    live = LiveSettings(with_values(Impala(), {"optimizer.learning_rate": 0.25, "optimizer.learning_rate_decay": True}))
    optimizer = make_optimizer(live.agent.optimizer, steps=10)
    weight = tf.Variable(1.0)

    def rate_of_next_step():
        optimizer.apply_gradients([(tf.constant(1.0), weight)])
        return float(optimizer.learning_rate)

    assert rate_of_next_step() == 0.25
    live.change({"optimizer.learning_rate": 0.5})
    assert rate_of_next_step() == 0.5
    # By what is done of the run, whatever the number of learner steps.
    live.follow(0, 2, done=0.5)
    assert rate_of_next_step() == 0.25


def test_schedules_are_followed_until_a_change_replaces_them():
    schedules = {
        "entropy_cost": Schedule(start=1.0, end=0.0),
        "optimizer.learning_rate": Schedule(
            schedule="piecewise", values=(0.5, 0.25), boundaries=(3,), by="learner_steps"
        ),
    }
    live = LiveSettings(with_values(Impala(), schedules), max_steps=100)
    optimizer = make_optimizer(live.agent.optimizer, steps=10)
    weight = tf.Variable(1.0)

    def values():
        before = float(weight)
        optimizer.apply_gradients([(tf.constant(1.0), weight)])
        return float(live.agent.entropy_cost), float(optimizer.learning_rate), before - float(weight)

    assert values()[:2] == (1.0, 0.5)
    live.follow(25, 2)
    assert values()[:2] == (0.75, 0.5)
    live.follow(50, 3)
    assert values()[:2] == (0.5, 0.25)
    assert live.metrics == {"scheduled_entropy_cost": 0.5, "scheduled_learning_rate": 0.25}
    live.change({"entropy_cost": 2.0})
    live.follow(75, 4)
    assert values()[:2] == (2.0, 0.25) and live.metrics == {"scheduled_learning_rate": 0.25}
    live.follow(200, 100)
    assert values()[1] == 0.25


def test_one_name_changes_all_learning_rates():
    rates = {f"{name}_optimizer.learning_rate": 1e-4 for name in ("actor", "critic", "temperature")}
    assert live_changes(Sac(), {"learning_rate": 1e-4}) == rates
    assert live_changes(Sac(), {"critic_optimizer.learning_rate": 1}) == {"critic_optimizer.learning_rate": 1.0}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"entropy_costs": 0.1}, "unknown setting 'entropy_costs'; did you mean 'entropy_cost'"),
        ({"ent_coef": 0.1}, "unknown setting 'ent_coef'; did you mean 'entropy_cost'"),
        ({"discount": 0.9}, "discount cannot change while impala learns; what can is .*entropy_cost"),
        ({"entropy_cost": -1.0}, "entropy_cost must be a number of at least 0"),
        ({"entropy_cost": "low"}, "entropy_cost must be a number, not 'low'"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(settings, message):
    with pytest.raises(CallboardError, match=message):
        live_changes(Impala(), settings)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_changed_copy_of_the_agent_keeps_the_variables(name):
    """As an agent of one's own makes it in `make_learner`."""
    agent = agent_class(name)()
    live = LiveSettings(agent).agent
    values, copied = values_of(live), values_of(dataclasses.replace(live))
    variables = {key for key, value in values.items() if isinstance(value, tf.Variable)}
    assert variables >= set(type(agent).live) and all(copied[key] is values[key] for key in variables)
    for key in variables:
        group = key.partition(".")[0]
        plain = dataclasses.replace(live, **{group: getattr(agent, group)})
        assert values_of(plain)[key] == values_of(agent)[key]


def test_a_variable_of_another_kind_is_no_number():
    with pytest.raises(CallboardError, match="agent.entropy_cost must be a number"):
        Impala(entropy_cost=tf.Variable(1.0))
    with pytest.raises(CallboardError, match="agent.baseline_cost must be a number of at least 0"):
        dataclasses.replace(LiveSettings(Impala()).agent, baseline_cost=-1.0)
