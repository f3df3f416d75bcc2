"""Settings of networks: defaults, what is allowed, and that the functions that build networks take them all."""

import dataclasses
import inspect
from typing import Any

import pytest

from callboard.errors import CallboardError
from callboard.networks.actor_critics.actor_critic import ActorCriticParts
from callboard.networks.factory import policy_value_network, q_network
from callboard.networks.network_settings import (
    ActorCriticSettings,
    NetworkSettings,
    PolicyValueNetworkSettings,
    QNetworkSettings,
    RecurrentQNetworkSettings,
)
from callboard.networks.torsos.encoders import Encoders
from callboard.networks.torsos.torso_factory import make_torso
from callboard.settings.nested_settings import declared_fields, from_values
from callboard.settings.setting_types import check_ranges, converted

MLP: dict[str, Any] = {"hidden_sizes": (64,), "activation": "relu"}
POLICY_VALUE = PolicyValueNetworkSettings(**MLP, lstm_size=8, head_sizes=(16, 16))
RECURRENT_Q = RecurrentQNetworkSettings(**MLP, stream_size=0, lstm_size=8)


def test_defaults_are_those_that_agents_share():
    image = {"filters": (), "image_features": None, "precision": "float32"}
    image |= {"image_activation": None, "image_initializer": None}
    body = {"torso": "auto", "torso_options": {}, "torsos": {}, **MLP, "layer_norm": False, **image}
    core: dict[str, Any] = {"lstm_size": 8, "core_options": {}}
    head: dict[str, Any] = {"head": None, "head_options": {}, "heads_by": None}
    assert dataclasses.asdict(NetworkSettings(**MLP)) == body
    heads: dict[str, Any] = {"head": None, "head_options": {}, "critic_head": None, "critic_head_options": {}}
    assert dataclasses.asdict(ActorCriticSettings(**MLP)) == {
        **{**body, **heads, "block": "plain"},
        "normalize_observations": True,
    }
    assert dataclasses.asdict(POLICY_VALUE) == {
        **{**body, **core, **head, "core": "none"},
        **{"head_sizes": (16, 16), "shared": True, "previous_inputs": False, "normalize_observations": True},
        **{"critic_state": None, "autoregressive": False},
        "popart": {"enabled": False, "rate": 3e-4, "task": None},
    }
    q = {**body, **head, "dueling": True, "stream_size": 0, "normalize_observations": True}
    assert dataclasses.asdict(QNetworkSettings(**MLP, stream_size=0)) == q
    assert dataclasses.asdict(RECURRENT_Q) == {**q, **core, "core": "lstm", "previous_inputs": True}


def test_sizes_and_the_activation_are_the_agents_choice():
    with pytest.raises(TypeError, match="'hidden_sizes' and 'activation'"):
        NetworkSettings()
    with pytest.raises(TypeError, match="'lstm_size' and 'head_sizes'"):
        PolicyValueNetworkSettings(**MLP)
    with pytest.raises(TypeError, match="'stream_size'"):
        QNetworkSettings(**MLP)


@pytest.mark.parametrize(
    "settings, builders",
    [
        (PolicyValueNetworkSettings, (policy_value_network, make_torso)),
        (QNetworkSettings, (q_network, make_torso)),
        (RecurrentQNetworkSettings, (q_network, make_torso)),
        (ActorCriticSettings, (ActorCriticParts, Encoders, make_torso)),
    ],
)
def test_what_builds_a_network_takes_every_setting(settings, builders):
    parameters = {name for build in builders for name in inspect.signature(build).parameters}
    assert {field.name for field in dataclasses.fields(settings)} <= parameters


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            dataclasses.replace(POLICY_VALUE, hidden_sizes=(10**9,)),
            "hidden_sizes must be a list of whole numbers from 1",
        ),
        (
            dataclasses.replace(POLICY_VALUE, hidden_sizes=(64, 0)),
            "hidden_sizes must be a list of whole numbers from 1",
        ),
        (dataclasses.replace(POLICY_VALUE, head_sizes=(-1,)), "head_sizes must be a list of whole numbers from 1"),
        (dataclasses.replace(POLICY_VALUE, lstm_size=0), "lstm_size must be a whole number from 1 to 65,536, not 0"),
        (dataclasses.replace(RECURRENT_Q, stream_size=-1), "stream_size must be a whole number of at least 0, not -1"),
        (dataclasses.replace(RECURRENT_Q, lstm_size=0), "lstm_size must be a whole number from 1 to 65,536, not 0"),
    ],
)
def test_a_size_out_of_range_is_refused(settings, message):
    with pytest.raises(CallboardError, match=f"^{message}"):
        check_ranges(settings)


def test_a_network_may_be_without_hidden_layers():
    check_ranges(dataclasses.replace(POLICY_VALUE, hidden_sizes=(), head_sizes=()))
    check_ranges(RECURRENT_Q)


def test_an_unknown_activation_is_refused():
    with pytest.raises(CallboardError, match="^activation must be relu, tanh, elu, .* or swish, not 'rlu'$"):
        converted("activation", "rlu", declared_fields(NetworkSettings)["activation"].hint)


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"torso": "resnet8", "image_initializer": "orthogonal"},
            "image_initializer is not for resnet8, which has its own: leave it out",
        ),
        ({"core": "lstn"}, "network: unknown core 'lstn'; did you mean 'lstm'?"),
        ({"core": "qqq"}, "choose from none, lstm, gru, gtrxl, or write package.module:factory"),
        (
            {"core": "gru", "core_options": {"size": 3}},
            "core_options are for core gtrxl, or for a core .*, not for gru",
        ),
        ({"head_options": {"size": 3}}, "head_options are for a head package.module:factory, not for the default"),
        ({"core": "gtrxl", "core_options": {"layer": 3}}, "unknown key 'core_options.layer'; did you mean"),
        ({"core": "gtrxl", "core_options": {"heads": 0}}, "core_options.heads must be a whole number of at least 1"),
        ({"core": "gtrxl", "core_options": {"heads": 3}}, "3 heads of equal size: make lstm_size a multiple"),
        ({"torso": "conv"}, "torso conv needs filters, such as"),
        ({"torsos": {"eye": "conv"}}, "torso conv needs filters, such as"),
        ({"torso": "nature", "filters": ((8, 3, 1),)}, "filters are those of torso conv, not of nature: leave one of"),
        ({"shared": False, "head": "a:b"}, "needs shared: true"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(changed, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check_ranges(dataclasses.replace(POLICY_VALUE, **changed), "network.")
    assert "\n" not in str(caught.value)
    check_ranges(dataclasses.replace(POLICY_VALUE, core="a:b", core_options={"size": 3}, filters=((8, 3, 1),)))
    check_ranges(dataclasses.replace(POLICY_VALUE, core="gtrxl", core_options={"heads": 4, "memory": 5}))
    check_ranges(dataclasses.replace(POLICY_VALUE, torso="mlp", torsos={"eye": "conv"}, filters=((8, 3, 1),)))


def test_filters_are_lists_of_three_numbers():
    hint = declared_fields(NetworkSettings)["filters"].hint
    assert converted("filters", [[32, 8, 4], [64, 4, 2]], hint) == ((32, 8, 4), (64, 4, 2))
    for wrong in ([[32, 8]], [[32, 8, 0]], [32, 8, 4], 3):
        with pytest.raises(CallboardError, match="^filters must be a list"):
            converted("filters", wrong, hint)


def test_lists_are_converted_to_the_sizes_of_layers():
    fields = declared_fields(POLICY_VALUE)
    plain = {"hidden_sizes": [32, 16], "head_sizes": [], "core": "lstm", "lstm_size": 4, "activation": "tanh"}
    values = {name: converted(name, value, fields[name].hint) for name, value in plain.items()}
    assert from_values(PolicyValueNetworkSettings, values) == PolicyValueNetworkSettings(
        hidden_sizes=(32, 16), head_sizes=(), core="lstm", lstm_size=4, activation="tanh"
    )
