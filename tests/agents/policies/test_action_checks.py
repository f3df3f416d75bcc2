"""What agents refuse of an environment's actions."""

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard.agents.policies.action_checks import check_discrete, check_discrete_or_bounded, check_finite_bounds
from callboard.errors import CallboardError
from callboard.specs import MultiDiscreteArray

CHOICE = dm_specs.DiscreteArray(2)
BOX = dm_specs.BoundedArray((2,), np.float32, -1, 1)
UNBOUNDED = dm_specs.BoundedArray((2,), np.float32, -1, [1, np.inf])
NOTHING = dm_specs.BoundedArray((0,), np.float32, -1, 1)
NO_CHOICES = MultiDiscreteArray(np.zeros((0,), int))
CHOICES = (CHOICE, MultiDiscreteArray([2, 3]), {"a": CHOICE, "b": (CHOICE, MultiDiscreteArray([2]))})


def test_actions_that_fit_pass():
    for action in (*CHOICES, BOX, UNBOUNDED, {"a": CHOICES, "b": UNBOUNDED}):
        check_discrete_or_bounded("some", action)
    for action in CHOICES:
        check_discrete("some", action)
    check_finite_bounds("some", BOX)


@pytest.mark.parametrize(
    "check, action, message",
    [
        (
            check_discrete_or_bounded,
            dm_specs.Array((2,), np.float32),
            r"some needs actions that are discrete or floats .* float32\(2,\)$",
        ),
        (
            check_discrete_or_bounded,
            dm_specs.BoundedArray((2,), np.int32, 0, 3),
            r"some needs actions that are .* action is int32\(2,\)$",
        ),
        (
            check_discrete_or_bounded,
            (CHOICE, dm_specs.Array((), np.float32)),
            r"is 2 discrete actions, float32\(\)$",
        ),
        (check_discrete_or_bounded, (CHOICE, NOTHING), "some has nothing to choose"),
        (check_discrete_or_bounded, (), "some has nothing to choose"),
        (check_discrete_or_bounded, NOTHING, "some has nothing to choose: the environment's action is"),
        (check_discrete, BOX, r"some .* one discrete action, or .* action is float32\(2,\)$"),
        (check_discrete, (CHOICE, BOX), r"some .* action is 2 discrete actions, float32\(2,\)$"),
        (check_discrete, NO_CHOICES, "some has nothing to choose"),
        (check_finite_bounds, UNBOUNDED, r"some scales .* float32\(2,\), has bounds that are infinite"),
        (
            check_finite_bounds,
            dm_specs.BoundedArray((2,), np.float32, -np.inf, 1.0),
            "some scales .* has bounds that are infinite",
        ),
    ],
)
def test_other_actions_are_refused_in_one_line(check, action, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check("some", action)
    assert "\n" not in str(caught.value)
