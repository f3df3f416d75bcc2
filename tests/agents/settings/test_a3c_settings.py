"""A3C's hyperparameters: those of A2C, but for its batches."""

from settings_checks import assert_refused, through_yaml, values_of

from callboard.agents.settings.a2c_settings import A2CSettings, A3CSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_a2c():
    of_a2c = values_of(A2CSettings)
    for name in ("batch_size", "accumulate", "max_policy_lag"):
        del of_a2c[name]
    # A bonus is a learner's, and A3C's gradients are computed in actors.
    of_a2c = {name: value for name, value in of_a2c.items() if not name.startswith("bonus.")}
    assert values_of(A3CSettings) == {**of_a2c, "waiting_gradients": 3}


def test_values_survive_yaml():
    changed = from_values(A3CSettings, {"unroll_length": 20, "optimizer.name": "adam", "waiting_gradients": 8})
    assert through_yaml(changed) == changed


def test_a_queue_of_nothing_is_refused():
    assert_refused(A3CSettings(), "waiting_gradients", 0, "a whole number of at least 1")
