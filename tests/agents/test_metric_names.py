"""The table of learners' metrics; `test_replicas.py` compares it with what the agents report."""

import re

from agent_cases import AGENT_CASES

from callboard.agents.agent_names import AGENTS
from callboard.agents.learning.live_settings import scheduled_metric
from callboard.agents.metric_names import BONUS_METRICS, LEARNER_METRICS, SCHEDULE_METRICS, Metric
from callboard.agents.registry import agent_class, agent_settings
from callboard.settings.nested_settings import declared_fields


def names_of(agent):
    return {metric.name for metric in LEARNER_METRICS if not metric.agents or agent in metric.agents}


def test_every_name_stands_once_and_has_a_meaning():
    metrics = [*LEARNER_METRICS, *BONUS_METRICS, *SCHEDULE_METRICS]
    names = [metric.name for metric in metrics]
    assert len(names) == len(set(names))
    for metric in metrics:
        assert re.fullmatch("[a-z]+(_[a-z]+)*", metric.name) and metric.meaning


def test_metrics_belong_to_agents_of_the_registry():
    for metric in LEARNER_METRICS:
        assert set(metric.agents) <= set(AGENTS), metric.name
        assert len(metric.agents) == len(set(metric.agents)) < len(AGENTS), f"{metric.name}: empty for all agents"


def test_every_agent_has_its_first_loss_and_what_all_agents_have():
    for case in AGENT_CASES:
        values = {"value"} if case.name != "bc" else set()  # It learns none.
        assert {case.first_loss.replace(" ", "_"), "policy_lag", *values} <= names_of(case.name)


def test_bonuses_are_of_the_agents_that_have_the_setting():
    with_bonus = {name for name in AGENTS if "bonus.name" in declared_fields(agent_settings(name))}
    with_values = {name for name in with_bonus if "bonus.discount" in declared_fields(agent_settings(name))}
    for metric in BONUS_METRICS:
        assert set(metric.agents) == (with_values if metric.name == "bonus_value" else with_bonus), metric.name


def test_ppo_reports_its_rates():
    assert {"learning_rate", "clip_range"} <= names_of("ppo")


def test_a_metric_is_of_all_agents_and_without_a_unit_by_default():
    assert Metric("loss", "total loss") == Metric("loss", "total loss", unit="", agents=())


def test_every_setting_that_may_be_a_schedule_has_a_metric():
    for name in AGENTS:
        for setting, field in declared_fields(agent_settings(name)).items():
            if "Schedule" in str(field.hint):
                metric = scheduled_metric(setting)
                assert any(one.name == metric and name in one.agents for one in SCHEDULE_METRICS), metric
                assert setting in agent_class(name).live
