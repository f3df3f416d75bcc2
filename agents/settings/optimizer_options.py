"""Keras's optimizers and their options, as tables, so that settings are checked before TensorFlow is imported."""

from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError, suggestion, unknown
from ...settings.setting_types import converted

_SHARED: Mapping[str, Any] = {
    "weight_decay": float,
    "clipnorm": float,
    "clipvalue": float,
    "use_ema": bool,
    "ema_momentum": float,
    "ema_overwrite_frequency": int,
}
_MOMENTS: Mapping[str, Any] = {"beta_1": float, "beta_2": float}

OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "adadelta": {"rho": float},
    "adafactor": {
        "beta_2_decay": float,
        "epsilon_1": float,
        "epsilon_2": float,
        "clip_threshold": float,
        "relative_step": bool,
    },
    "adagrad": {"initial_accumulator_value": float},
    "adam": {**_MOMENTS, "amsgrad": bool},
    "adamax": _MOMENTS,
    "adamw": {**_MOMENTS, "amsgrad": bool},
    "ftrl": {
        "learning_rate_power": float,
        "initial_accumulator_value": float,
        "l1_regularization_strength": float,
        "l2_regularization_strength": float,
        "l2_shrinkage_regularization_strength": float,
        "beta": float,
    },
    "nadam": _MOMENTS,
    "rmsprop": {"momentum": float, "centered": bool},
    "sgd": {"momentum": float, "nesterov": bool},
}
"""The optimizers in `tf.keras.optimizers`, in lower case, with the types of their options besides the shared ones."""

WITHOUT_EPSILON = ("adafactor", "ftrl", "sgd")
"""Optimizers without a single epsilon, which ignore that setting."""

_SETTINGS = {"learning_rate": "learning_rate", "epsilon": "epsilon", "rho": "rmsprop_decay"}
"""Options that have settings of their own."""


def check_optimizer(name: str, options: Mapping[str, Any]) -> None:
    """Checks an optimizer's name and options.

    Args:
      name: a name in `OPTIMIZERS`, or `package.module:factory`, whose options are its own.
      options: the options.

    Raises:
      CallboardError: the name or an option is unknown, or an option has a value of the wrong type.
    """
    if ":" in name:
        return
    if name not in OPTIMIZERS:
        raise unknown(
            "optimizer", name, OPTIMIZERS, f"choose from {', '.join(OPTIMIZERS)}, or write package.module:factory"
        )
    kinds = {**OPTIMIZERS[name], **_SHARED}
    for option, value in options.items():
        if option in kinds:
            converted(f"option {option} of the optimizer {name}", value, kinds[option])
        elif option in _SETTINGS:
            raise CallboardError(f"{option} is no option of the optimizer: set {_SETTINGS[option]} itself")
        else:
            raise CallboardError(
                f"unknown option {option!r} of the optimizer {name!r}; {suggestion(option, sorted(kinds))}"
            )
