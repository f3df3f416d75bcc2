"""Hyperparameters of QMIX and VDN: all defaults, and ranges."""

import pytest
from settings_checks import assert_refused, through_yaml, values_of

from callboard.agents.settings.qmix_settings import QmixSettings, VdnSettings
from callboard.networks.network_settings import TeamNetworkSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    found = values_of(QmixSettings)
    own = {
        "mixer": "qmix",
        "mixing_size": 32,
        "hypernetwork_size": 64,
        "burn_in": 10,
        "trace_length": 20,
        "period": 10,
        "n_step": 1,
        "batch_size": 32,
        "discount": 0.99,
        "epsilon": 0.4,
        "epsilon_alpha": 7.0,
        "target_update_period": 100,
        "optimizer.learning_rate": 5e-4,
        "optimizer.epsilon": 1e-5,
        "replay.size": 20_000,
        "replay.min_size": 200,
        "replay.samples_per_insert": 32.0,
        "network.core": "gru",
        "network.lstm_size": 64,
        "network.hidden_sizes": (64,),
        "network.dueling": False,
        "network.shared": True,
        "network.previous_actions": True,
    }
    assert {name: found[name] for name in own} == own
    assert values_of(VdnSettings) == {**found, "mixer": "vdn"}


def test_values_survive_yaml():
    changed = from_values(QmixSettings, {"mixer": "vdn", "network.shared": False, "network.core": "none"})
    for settings in (QmixSettings(), VdnSettings(), changed):
        assert through_yaml(settings) == settings


def test_a_members_network_has_the_other_settings():
    settings = TeamNetworkSettings(hidden_sizes=(3,), activation="relu", lstm_size=4, stream_size=0)
    assert settings.of_member.keys() == vars(settings).keys() - {"shared", "previous_actions"}


def test_members_with_networks_of_their_own_have_no_heads_by():
    settings = TeamNetworkSettings(
        hidden_sizes=(3,), activation="relu", lstm_size=4, stream_size=0, shared=False, heads_by="member"
    )
    assert settings.problem.startswith("with shared: false each member has a network")


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("mixing_size", 0, "a whole number of at least 1"),
        ("hypernetwork_size", -1, "a whole number of at least 0"),
        ("n_step", 0, "a whole number of at least 1"),
        ("epsilon", 1.1, "a number from 0 to 1 or a schedule such as {schedule: linear, start: 1e-3}"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(QmixSettings(), name, value, allowed)
