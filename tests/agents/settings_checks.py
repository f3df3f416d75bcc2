"""What tests of settings compare: values by name, settings that have passed through YAML, and ranges."""

from typing import Any

import pytest
import yaml

from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields, from_values, with_values
from callboard.settings.setting_types import check_ranges, converted

NETWORK: dict[str, Any] = {
    "network.torso": "auto",
    "network.layer_norm": False,
    "network.filters": (),
    "network.image_features": None,
    "network.image_activation": None,
    "network.image_initializer": None,
    "network.torso_options": {},
    "network.torsos": {},
    "network.precision": "float32",
}
"""Defaults of every agent's network but DMPO's."""
BONUS: dict[str, Any] = {
    "bonus.name": "none",
    "bonus.weight": 0.5,
    "bonus.learning_rate": 1e-5,
    "bonus.hidden_sizes": (128,),
    "bonus.features": 64,
    "bonus.forward_weight": 0.2,
}
"""Defaults of an exploration bonus."""
VALUED_BONUS: dict[str, Any] = {**BONUS, "bonus.learning_rate": 3e-4, "bonus.discount": 0.99}
"""The same of agents that learn values of bonuses."""
HEAD: dict[str, Any] = {"network.head": None, "network.head_options": {}, "network.heads_by": None}
"""Defaults of networks with one head."""
ACTOR_CRITIC_NETWORK: dict[str, Any] = {
    **NETWORK,
    "network.head": None,
    "network.head_options": {},
    "network.critic_head": None,
    "network.critic_head_options": {},
    "network.block": "plain",
}
"""Defaults of networks for a policy and critics."""
CRITICS: dict[str, Any] = {
    "n_step": 1,
    "critics.number": 2,
    "critics.minimum_of": None,
    "critics.quantiles": None,
    "critics.dropped": 0,
    "critics.dropout": 0.0,
    "critics.layer_norm": False,
    "critics.hidden_sizes": None,
    "reset_every": None,
}
"""Defaults of the critics of SAC and TD3, and of their returns."""
POLICY_VALUE_NETWORK: dict[str, Any] = {
    **NETWORK,
    **HEAD,
    "network.activation": "tanh",
    "network.core": "none",
    "network.core_options": {},
    "network.shared": True,
    "network.autoregressive": False,
    "network.previous_inputs": False,
    "network.critic_state": None,
    "network.normalize_observations": True,
    "network.popart.enabled": False,
    "network.popart.rate": 3e-4,
    "network.popart.task": None,
}
"""Defaults of networks for policy and value."""


def values_of(settings: Any) -> dict[str, Any]:
    """The values of a dataclass by names such as `optimizer.learning_rate`; the defaults if it is a class."""
    return {name: field.default for name, field in declared_fields(settings).items()}


def through_yaml(settings: Any) -> Any:
    """The same settings written to YAML, read, converted to the types of their fields, and made again."""
    fields = declared_fields(settings)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values_of(settings).items()}
    read = yaml.safe_load(yaml.safe_dump(plain))
    values = {name: converted(name, read[name], field.hint) for name, field in fields.items()}
    return from_values(type(settings), values)


def assert_refused(settings: Any, name: str, value: Any, allowed: str) -> None:
    """Asserts that a value is out of its field's range, and that one line says so."""
    with pytest.raises(CallboardError) as caught:
        check_ranges(with_values(settings, {name: value}), "agent.")
    assert str(caught.value) == f"agent.{name} must be {allowed}, not {value}"
