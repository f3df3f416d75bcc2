"""Settings of policies: every kind, every wrong value, and the way through YAML and options."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from callboard.agents.agent import Agent
from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.environments.multi_agent.policy_slots import parse_mapping
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import (
    AgentSettings,
    RandomPolicy,
    Snapshots,
    TrainedPolicy,
    check_policies,
    learning_policies,
    made_policies,
    parse_policies,
    policy_setting,
)
from callboard.launch.experiments.settings import format_experiment, parse_experiment, plain
from callboard.launch.experiments.yaml_files import parse_yaml


def parse(settings, agent="ppo", **of_agent):
    return parse_policies({"red": settings}, agent, of_agent)["red"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, AgentSettings("ppo", {"epochs": 2})),
        (None, AgentSettings("ppo", {"epochs": 2})),
        ({"epochs": 5}, AgentSettings("ppo", {"epochs": 5})),
        ({"unroll-length": 5}, AgentSettings("ppo", {"epochs": 2, "unroll_length": 5})),
        ({"name": "ppo", "discount": 0.5}, AgentSettings("ppo", {"epochs": 2, "discount": 0.5})),
        ("apex", AgentSettings("apex", {})),
        ({"optimizer": "sgd"}, AgentSettings("ppo", {"epochs": 2, "optimizer": {"name": "sgd"}})),
        ({"name": "apex", "replay": {"min_size": 9}}, AgentSettings("apex", {"replay": {"min_size": 9}})),
        ("random", RandomPolicy()),
        ({"name": "random"}, RandomPolicy()),
        ({"weights": "runs/a@best"}, TrainedPolicy("runs/a@best")),
        ({"snapshots_of": "blue"}, Snapshots("blue")),
        ({"snapshots-of": "blue", "every": 10, "keep": 2}, Snapshots("blue", 10, 2)),
        (Snapshots("blue"), Snapshots("blue")),
        (RandomPolicy(), RandomPolicy()),
    ],
)
def test_every_kind(settings, expected):
    assert parse(settings, epochs=2) == expected


def test_groups_of_the_run_s_agent_are_merged_and_other_mappings_replaced():
    of_agent = {"optimizer": {"learning_rate": 0.5}, "clip": {"schedule": "linear", "start": 0.2, "end": 0.1}}
    policy = parse({"optimizer": "sgd", "clip": {"schedule": "constant", "start": 0.3}}, **of_agent)
    assert policy.values == {
        "optimizer": {"name": "sgd", "learning_rate": 0.5},
        "clip": {"schedule": "constant", "start": 0.3},
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (3, r"policies\.red must be a name, or hold settings such as `{name: ppo}`, not 3"),
        ([1], r"policies\.red must be a name, or hold settings"),
        ("ppp", "did you mean 'ppo'"),
        ({"name": 3}, r"policies\.red\.name must be the name of an agent, such as ppo, not 3"),
        ({"name": "random", "seed": 1}, "a random policy has no settings; leave seed out"),
        ({"epoch": 3}, "epochs"),
        ({"epochs": "many"}, r"policies\.red\.epochs"),
        ({"epochs": 0}, r"policies\.red\.epochs"),
        ({"optimizer": {"learning_rat": 1}}, "learning_rate"),
        ({"weights": 3}, r"policies\.red\.weights"),
        ({"weights": "a", "name": "ppo"}, r"policies\.red.*name"),
        ({"weights": "a", "every": 3}, r"policies\.red.*every"),
        ({"snapshots_of": "blue", "keep": 0}, "keep must be"),
        ({"snapshots_of": "blue", "keep": "all"}, r"policies\.red\.keep"),
        ({"snapshots_of": "blue", "evry": 3}, "did you mean 'policies.red.every'"),
    ],
)
def test_wrong_values_are_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as error:
        parse(settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("policy", [RandomPolicy(), TrainedPolicy("a@3"), Snapshots("blue", 7, 3), Ppo(epochs=3)])
def test_settings_restore_the_policy(policy):
    restored = parse(plain(policy_setting(policy)))
    assert (restored.make() if isinstance(restored, AgentSettings) else restored) == policy


@dataclasses.dataclass(frozen=True)
class Weighted(Ppo):
    """An agent with a setting that has the name of one of a policy of another kind."""

    weights: float = 1.0


def test_an_agent_of_one_s_own_may_have_a_setting_called_weights():
    settings = plain(policy_setting(Weighted(weights=2.0)))
    (policy,) = made_policies(parse_policies({"a": settings}, "ppo", {})).values()
    assert policy == Weighted(weights=2.0)


@dataclasses.dataclass(frozen=True)
class Squashed(Ppo):
    """An agent whose setting is a function."""

    squash: Any = np.tanh


def test_a_function_as_a_setting_is_refused_before_a_run_is_written():
    with pytest.raises(
        CallboardError, match="^agent.squash is <ufunc 'tanh'>, which a run's settings cannot hold: let"
    ):
        format_experiment(Experiment(Squashed(), env="CartPole-v1"))
    # The help shows defaults of whatever kind.
    assert plain([np.tanh, Squashed]) == ["numpy:ufunc", f"{__name__}:Squashed"]


def test_a_name_from_yaml_may_be_a_number():
    (name,) = parse_policies({0: {}}, "ppo", {})
    assert name == "0"


@pytest.mark.parametrize(
    ("policies", "train", "message"),
    [
        ({"a b": Ppo()}, (), "cannot name a policy: use letters, digits, - and _"),
        ({"": Ppo()}, (), "cannot name a policy"),
        ({"../up": Ppo()}, (), "cannot name a policy"),
        ({"evaluator": Ppo()}, (), "because metrics have that name"),
        ({"red": "ppo"}, (), "policies: red must be an agent, RandomPolicy, TrainedPolicy or Snapshots"),
        ({"red": Ppo()}, ("rde",), "did you mean 'red'"),
        ({"red": Ppo(), "blue": RandomPolicy()}, ("blue",), "'blue' is fixed and cannot learn; leave it out of train"),
        ({"red": RandomPolicy()}, (), "no policy learns"),
        ({"red": Ppo(), "blue": Ppo()}, ("red",), "'blue' has an agent, and is not in train"),
        ({"red": Ppo(), "old": Snapshots("blue")}, (), "old are snapshots of 'blue', which does not learn"),
        ({"red": Ppo(), "old": Snapshots("old")}, (), "old are snapshots of 'old', which does not learn"),
    ],
)
def test_policies_that_no_run_can_have(policies, train, message):
    with pytest.raises(CallboardError, match=message):
        check_policies(policies, train)


def test_all_agents_learn_unless_some_are_named():
    policies = {"red": Ppo(), "blue": Apex(), "old": RandomPolicy()}
    assert list(learning_policies(policies, ())) == ["red", "blue"]
    assert list(learning_policies(policies, ("blue",))) == ["blue"]


RECIPE = {
    "env": "echo_agents:Echo",
    "agent": {"name": "ppo", "epochs": 2},
    "policies": {
        "red": {"optimizer": {"learning_rate": 0.5}},
        "blue": {"name": "impala"},
        "old": {"snapshots_of": "red", "every": 10},
        "saved": {"weights": "run@best"},
        "other": "random",
    },
    "mapping": {"left": "red", "*": {"blue": 1, "old": 2}},
}


def test_options_change_one_policy():
    options = ["--policies.red.optimizer.learning-rate", "1e-3", "--policies.blue.name", "apex"]
    options += ["--mapping.left", "red", "--train", "red,blue", "--policies.old.every", "20", "--no-policies.saved"]
    experiment = parse_experiment(None, RECIPE, options)
    assert experiment.policies["red"].optimizer.learning_rate == 1e-3 and experiment.policies["red"].epochs == 2
    assert isinstance(experiment.policies["blue"], Apex)
    assert experiment.policies["old"] == Snapshots("red", 20)
    assert list(experiment.policies) == ["red", "blue", "old", "other"]
    assert experiment.mapping == {"left": "red", "*": {"blue": 1, "old": 2}} and experiment.trained == ("red", "blue")


def test_options_keep_the_agent_that_a_recipe_names():
    recipe = {**RECIPE, "policies": {"red": "apex", "blue": {}}}
    experiment = parse_experiment(None, recipe, ["--policies.red.batch-size", "16"])
    assert experiment.policies["red"] == Apex(batch_size=16)


def test_an_option_for_one_agent_decides_before_patterns():
    experiment = parse_experiment(None, {**RECIPE, "mapping": {"*": "blue"}}, ["--mapping.left", "red"])
    mapping = parse_mapping(experiment.mapping, ("left", "right"), {"red": None, "blue": None})
    assert mapping.policies_of == {"left": ("red",), "right": ("blue",)}


def test_policies_can_be_options_alone():
    options = ["--env", "echo_agents:Echo", "--policies.left.epochs", "7", "--policies.right.name", "random"]
    experiment = parse_experiment("ppo", {}, [*options, "--agent.unroll-length", "5", "--train", "left"])
    assert experiment.policies == {"left": Ppo(epochs=7, unroll_length=5), "right": RandomPolicy()}
    assert experiment.trained == ("left",)


def test_an_experiment_with_policies_survives_yaml():
    experiment = parse_experiment(None, RECIPE, ["--train", "red,blue"])
    restored = parse_experiment(None, parse_yaml(format_experiment(experiment)), [])
    assert restored == experiment
    assert isinstance(restored.policies["red"], Agent)
    assert restored.policies["red"] == experiment.policies["red"]


def test_settings_of_an_agent_are_checked_without_its_class(monkeypatch):
    monkeypatch.setattr("callboard.launch.experiments.policy_settings.agent_class", None)
    assert parse({"name": "apex", "batch_size": 3}) == AgentSettings("apex", {"batch_size": 3})
    with pytest.raises(CallboardError, match=r"policies\.red\.batch_size"):
        parse({"name": "apex", "batch_size": 0})
