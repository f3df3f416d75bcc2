"""The tables of Keras's optimizers and options, against Keras."""

import inspect

import pytest
import tensorflow as tf

from callboard.agents.settings.optimizer_options import OPTIMIZERS, WITHOUT_EPSILON, check_optimizer
from callboard.errors import CallboardError

CLASSES = {
    name.lower(): found
    for name, found in vars(tf.keras.optimizers).items()
    if isinstance(found, type) and issubclass(found, tf.keras.optimizers.Optimizer) and name != "Optimizer"
}
FLAGS = ("amsgrad", "centered", "nesterov", "relative_step", "use_ema")
ELSEWHERE = {"self", "learning_rate", "epsilon", "name", "kwargs", "jit_compile", "global_clipnorm"}
"""Settings of their own, and what is not for users; `max_gradient_norm` is the global norm."""


def test_the_tables_are_those_of_keras():
    assert set(OPTIMIZERS) == set(CLASSES)
    for name, found in CLASSES.items():
        parameters = set(inspect.signature(found.__init__).parameters)
        expected = parameters - ELSEWHERE - ({"rho"} if name == "rmsprop" else set())
        for option in expected:
            check_optimizer(name, {option: True if option in FLAGS else 1})
        with pytest.raises(CallboardError, match="unknown option"):
            check_optimizer(name, {"made_up": 1})
        assert set(OPTIMIZERS[name]) <= expected
        assert ("epsilon" not in parameters) == (name in WITHOUT_EPSILON)


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("adm", {}, "^unknown optimizer 'adm'; did you mean 'adam'?"),
        ("qq", {}, "choose from adadelta, .*, sgd, or write package.module:factory"),
        ("Adam", {}, "did you mean 'adam'"),
        (
            "adamw",
            {"weight_decy": 1e-4},
            "unknown option 'weight_decy' of the optimizer 'adamw'; did you mean 'weight_d",
        ),
        ("sgd", {"beta_1": 0.9}, "unknown option 'beta_1' of the optimizer 'sgd'"),
        ("sgd", {"momentum": "much"}, "option momentum of the optimizer sgd must be a number, not 'much'"),
        ("adam", {"epsilon": 1e-3}, "epsilon is no option of the optimizer: set epsilon itself"),
        ("rmsprop", {"rho": 0.9}, "set rmsprop_decay itself"),
        ("adam", {"learning_rate": 1e-3}, "set learning_rate itself"),
    ],
)
def test_a_wrong_name_or_option_is_refused_in_one_line(name, options, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check_optimizer(name, options)
    assert "\n" not in str(caught.value)


def test_the_options_of_an_optimizer_of_the_user_s_own_are_not_checked():
    check_optimizer("my_package.optimizers:make", {"anything": object()})
