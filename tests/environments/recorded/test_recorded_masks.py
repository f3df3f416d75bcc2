"""Recorded masks and actions: each action is legal at its own observation, or its episode and step are named."""

import re

import numpy as np
import pytest
from dm_env import specs as dm_specs
from gymnasium import spaces
from recorded_sets import write

from callboard import dataset_info
from callboard.environments.batches.encoding import EnvironmentEncoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.recorded import open_data
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

pytest.importorskip("minari")
STEPS = 4


def masks(count):
    return spaces.Box(0, 9, (count,), np.int8)


def encoded(observation, action):
    return EnvironmentEncoding(observation_encoding(observation), action_encoding(action)).spec()


ONE = encoded(spaces.Dict({"action_mask": masks(3), "seen": spaces.Box(-1, 1, (2,))}), spaces.Discrete(3, start=5))
PARTS = encoded(
    spaces.Dict(
        {
            "action_mask": spaces.Dict({"keys": spaces.Tuple([masks(2), masks(3)]), "turn": masks(2)}),
            "seen": spaces.Box(-1, 1, (2,)),
        }
    ),
    spaces.Dict({"force": spaces.Box(-1, 1, (1,)), "keys": spaces.MultiDiscrete([2, 3]), "turn": spaces.Discrete(2)}),
)


def episode(mask, action):
    return {
        "observation": {"action_mask": mask, "seen": np.zeros((STEPS + 1, 2), np.float32)},
        "action": action,
        "reward": np.ones(STEPS),
        "terminated": False,
    }


def one(change=None):
    """An episode whose actions alternate, and whose last mask allows nothing."""
    mask, action = np.ones((STEPS + 1, 3), np.int8), np.arange(STEPS) % 2 + 5
    mask[-1] = 0
    if change is not None:
        change(mask, action)
    return episode(mask, action)


def parts(change=None):
    first, second, turn = (np.ones((STEPS + 1, count), np.int8) for count in (2, 3, 2))
    mask = {"keys": (first, second), "turn": turn}
    action = {
        "force": np.zeros((STEPS, 1), np.float32),
        "keys": np.tile([[1, 2]], (STEPS, 1)),
        "turn": np.arange(STEPS) % 2,
    }
    if change is not None:
        change(mask, action)
    return episode(mask, action)


def put(array, place, value):
    array[place] = value


REFUSED = {
    "an action": (one, lambda m, a: put(m, (2, 0), 0), "the action of step 2 is 5, which the 'action_mask' of its"),
    "the first action": (one, lambda m, a: put(m, (0, 0), 0), "the action of step 0 is 5, which the 'action_mask'"),
    "nothing allowed": (one, lambda m, a: put(m, 3, 0), "the 'action_mask' of step 3 allows nothing, and an action"),
    "no mask": (one, lambda m, a: put(m, (1, 2), 5), "the 'action_mask' of step 1 is 5, which is neither 1, for what"),
    "no last mask": (one, lambda m, a: put(m, (4, 2), -1), "the 'action_mask' of step 4 is -1, which is neither 1"),
    "a choice": (
        parts,
        lambda m, a: put(m["keys"][1], (1, 2), 0),
        r"the action at 'keys' of step 1 is [1, 2], which the",
    ),
    "another": (parts, lambda m, a: put(m["turn"], (3, 1), 0), "the action at 'turn' of step 3 is 1, which the"),
    "a choice without any": (parts, lambda m, a: put(m["turn"], 2, 0), "the 'action_mask' of step 2 allows nothing"),
}


@pytest.mark.parametrize(("make", "change", "problem"), REFUSED.values(), ids=list(REFUSED))
def test_a_step_that_its_mask_forbids_is_named_with_its_data_set_and_episode(make, change, problem, tmp_path):
    made = [make(), make(change), make()]
    name = write(tmp_path / "set-v0", ONE if make is one else PARTS, made)
    data = open_data(name)
    assert next(data.episodes([0])).length == STEPS
    whole = re.escape(f"episode 1 of the data set {name}: {problem}")
    for read in (lambda: list(data.episodes([1])), data.check, lambda: dataset_info(name)):
        with pytest.raises(CallboardError, match=f"^{whole}") as caught:
            read()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("make", "spec"), [(one, ONE), (parts, PARTS)])
def test_legal_actions_are_read(make, spec, tmp_path):
    data = open_data(write(tmp_path / "set-v0", spec, [make(), make()]))
    data.check()
    first, second = data.all_episodes()
    assert first.length == second.length == STEPS


def test_a_mask_that_does_not_fit_the_actions_is_refused(tmp_path):
    spec = EnvironmentSpec(
        {"action_mask": dm_specs.BoundedArray((2,), np.int8, 0, 1), "seen": dm_specs.Array((2,), np.float32)},
        dm_specs.DiscreteArray(3, np.int32),
    )
    name = write(tmp_path / "set-v0", spec, [])
    with pytest.raises(CallboardError, match=f"^the data set {name}: 'action_mask' has 2 elements, but .* 3 values$"):
        open_data(name)
