"""Several environments in one run: their shares of the slots, and batches that mix them."""

import re

import gymnasium
import numpy as np
import pytest

from callboard import environments
from callboard.environments import WeightedEnvironment
from callboard.environments.mixtures import MixedBatch, environment_of_slots, read_mixture
from callboard.errors import CallboardError


class Slot(gymnasium.Env):
    """Shows its kind and its slot; the reward is the action; ends after `limit` steps; its info is its kind."""

    def __init__(self, kind=0, index=None, limit=3, width=2, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,))
        self.action_space = gymnasium.spaces.Discrete(5)
        self._shown = np.full(width, index, np.float32)
        self._shown[0] = kind
        self._kind, self._limit, self.task = kind, limit, None
        self.render_mode, self.metadata = render_mode, {"render_fps": 10 + kind, "render_modes": ["rgb_array"]}

    def set_task(self, task):
        self.task = task

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return self._shown, {"task": self.task}

    def step(self, action):
        self._time += 1
        return self._shown, float(action), False, self._time == self._limit, {"kind": self._kind}

    def render(self):
        return np.full((2, 2, 3), self._kind, np.uint8)


class Wide(Slot):
    def __init__(self):
        super().__init__(width=3)


MIXTURE = (
    WeightedEnvironment(Slot, 2, {"kind": 1}),
    WeightedEnvironment(Slot, options={"kind": 7, "limit": 2}),
)


@pytest.mark.parametrize(
    "weights, expected",
    [
        ([1], [0, 0, 0]),
        ([1, 1], [0, 1, 0, 1, 0, 1]),
        ([2, 1], [0, 1, 0, 0, 1, 0]),
        ([0.1, 0.1, 0.1], [0, 1, 2, 0, 1, 2, 0, 1, 2]),
        ([1, 3], [1, 0, 1, 1, 1, 0, 1, 1]),
        ([1e308, 1e308], [0, 1, 0, 1]),
    ],
)
def test_slots_are_shared_in_proportion_from_the_beginning(weights, expected):
    assert environment_of_slots(weights, len(expected)).tolist() == expected


def test_every_beginning_of_the_slots_has_the_shares():
    weights = np.array([5.0, 3, 1, 0.5])
    chosen = environment_of_slots(weights, 400)
    for count in range(1, 401):
        counts = np.bincount(chosen[:count], minlength=4)
        assert np.abs(counts - count * weights / weights.sum()).max() < 1.5


def test_a_batch_mixes_its_environments_by_their_slots():
    batch = environments.make(MIXTURE, 4, range(4), {"limit": 3}, slots=range(3, 7), actor=1)
    assert isinstance(batch, MixedBatch) and batch.batch_size == 4
    timestep = batch.reset()
    assert timestep.observation.tolist() == [[1, 3], [7, 4], [1, 5], [1, 6]]
    assert [environment._kind for environment in batch.environments] == [1, 7, 1, 1]
    for step in range(3):
        timestep = batch.step(np.arange(4))
        assert timestep.reward.tolist() == ([0, 1, 2, 3] if step < 2 else [0, 0, 2, 3])
        assert timestep.last.tolist() == [step == 2, step == 1, step == 2, step == 2]
    assert timestep.observation.tolist() == [[1, 3], [7, 4], [1, 5], [1, 6]]
    assert timestep.first.tolist() == [False, True, False, False]
    batch.close()


def test_infos_and_tasks_are_those_of_the_parts():
    batch = environments.make(MIXTURE, 4, range(4))
    batch.keep_infos()
    batch.set_task("hard")
    batch.reset()
    assert [info["task"] for info in batch.infos.begun] == ["hard"] * 4
    batch.step(np.zeros(4, np.int32))
    assert [info["kind"] for info in batch.infos.followed] == [1, 7, 1, 1]


def test_the_picture_is_that_of_environment_0():
    batch = environments.make(MIXTURE, 3, range(3), {"render_mode": "rgb_array"}, slots=(1, 2, 3))
    batch.reset()
    assert batch.render()[0, 0, 0] == 7 and batch.frames_per_second == 17


def test_an_actor_with_one_kind_has_no_mixed_batch():
    batch = environments.make(MIXTURE, 2, range(2), slots=(2, 3))
    assert isinstance(batch, environments.GymnasiumBatch)


def test_entries_are_names_classes_mappings_or_weighted_environments():
    name = f"{Slot.__module__}:Slot"
    found = read_mixture(["CartPole-v1", Slot, {"name": "A", "weight": 2, "options": {"size": 3}}, MIXTURE[0]])
    assert found == (
        WeightedEnvironment("CartPole-v1"),
        WeightedEnvironment(Slot),
        WeightedEnvironment("A", 2.0, {"size": 3}),
        MIXTURE[0],
    )
    # Test modules are not imported by name.
    assert found[1].name in (name, Slot)


@pytest.mark.parametrize(
    "entries, message",
    [
        ([], "env is an empty list: name at least one environment"),
        ([{"weight": 1}], "env.name is missing from {'weight': 1}"),
        ([{"name": "A", "wait": 1}], "unknown key 'env.wait'; did you mean 'env.weight'?"),
        ([{"name": "A", "weight": 0}], "env.weight must be a number above 0, not 0"),
        ([{"name": "A", "options": [1]}], "env.options must be settings by name, such as {size: 5}, not [1]"),
        ([5], "env must be a name, a class or a function that makes environments, not an int"),
    ],
)
def test_other_entries_are_refused_in_one_line(entries, message):
    with pytest.raises(CallboardError, match=f"^{re.escape(message)}$"):
        read_mixture(entries)


def test_environments_with_different_spaces_are_refused_naming_both():
    with pytest.raises(CallboardError) as caught:
        environments.spec(["CartPole-v1", "Acrobot-v1"])
    assert str(caught.value) == (
        "environments 'CartPole-v1' and 'Acrobot-v1' have different spaces, and cannot be in one run: "
        "float32(4,) with 2 discrete actions, and float32(6,) with 3 discrete actions"
    )
    with pytest.raises(CallboardError, match="Slot' and '.*Wide' have different spaces"):
        environments.spec([Slot, Wide])
    with pytest.raises(CallboardError, match="in one run: the bounds or dtypes differ$"):
        environments.spec([lambda: bounded(1), lambda: bounded(2)])
    assert environments.spec(MIXTURE, {"limit": 9}) == environments.spec(Slot)


def bounded(limit):
    environment = Slot()
    environment.observation_space = gymnasium.spaces.Box(-limit, limit, (2,))
    return environment


def test_all_are_checked_with_their_own_options():
    environments.check(MIXTURE, {"width": 2})
    with pytest.raises(CallboardError, match="has no option 'wide'; did you mean 'width'?"):
        environments.check([*MIXTURE, WeightedEnvironment(Slot, options={"wide": 3})])
    with pytest.raises(CallboardError, match="unknown environment 'CartPol-v1'"):
        environments.check(["CartPole-v1", "CartPol-v1"])


def test_evaluation_leaves_out_options_for_training_of_each():
    mixture = ["procgen:coinrun", {"name": "ALE/Pong-v5", "options": {"life_loss": True, "noop_max": 3}}]
    entries, options = environments.for_evaluation(mixture, {"num_levels": 5})
    assert options == {}
    assert [entry.options for entry in entries] == [{}, {"num_levels": 5, "noop_max": 3}]
    assert environments.has_unseen_levels(mixture, {"num_levels": 5}) and not environments.has_unseen_levels(mixture)
