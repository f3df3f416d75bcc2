"""Names of weights do not depend on what a process has created before."""

import pytest

from callboard.agents.impala import Impala
from callboard.agents.variables.weight_names import weight_names
from callboard.launch.experiments.experiment import Experiment
from callboard.settings.nested_settings import from_values


def names_of(agent, env):
    policy = agent.make_policy(agent.make_networks(Experiment(agent, env).layout()), "train")
    return weight_names(policy, policy.variables)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("torso", ["mlp", "impala"])
def test_names_are_the_same_for_every_instance(torso):
    env = "CartPole-v1" if torso == "mlp" else "MinAtar/Breakout-v1"
    agent = from_values(Impala, {"network.torso": torso})
    first, second = names_of(agent, env), names_of(agent, env)
    assert first == second and len(set(first)) == len(first)
    assert {"head/logits/output/kernel", "head/value/output/bias"} < set(first)


def test_names_lead_to_the_weight():
    agent = from_values(Impala, {"network.core": "lstm", "network.hidden_sizes": (8, 8)})
    names = names_of(agent, "CartPole-v1")
    assert {"torso/dense_0/kernel", "torso/dense_1/bias", "core/lstm/recurrent_kernel", "normalizer/count"} < set(names)
