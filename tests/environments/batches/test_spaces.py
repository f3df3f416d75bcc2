"""Spaces of an environment as specs for agents, and actions of agents as the environment receives them."""

import functools

import gymnasium
import numpy as np
import pytest
import tree
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from odd_environments import error_of

from callboard.environments import GymnasiumBatch, GymnasiumVectorBatch, make
from callboard.environments.batches.encoding import decode, stack
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.errors import CallboardError
from callboard.specs import MultiDiscreteArray


class Mirror(gymnasium.Env):
    """Observations are samples of its space; records the actions that it receives."""

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space
        self.shown = []
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], 0.0, False, False, {}


NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "arm": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(5, start=-2))),
        "doors": spaces.MultiDiscrete([3, 4], start=[1, 0]),
        "lamps": spaces.MultiBinary(3),
    }
)


def batches(observation_space, action_space, batch_size=2):
    """The same environments twice: stepped one after the other, and as a vector environment."""
    singles = [[Mirror(observation_space, action_space) for _ in range(batch_size)] for _ in range(2)]
    seeds = range(batch_size)
    yield singles[0], GymnasiumBatch(singles[0], seeds)
    vector = SyncVectorEnv([functools.partial(lambda made: made, single) for single in singles[1]])
    yield singles[1], GymnasiumVectorBatch(vector, seeds)


def test_nested_observations():
    for singles, batch in batches(NESTED, spaces.Discrete(2)):
        observed = batch.spec.observation
        assert tree.map_structure(lambda leaf: (leaf.dtype.name, leaf.shape), observed) == {
            "camera": ("uint8", (4, 4, 3)),
            "arm": (("float32", (2,)), ("int32", ())),
            "doors": ("int32", (2,)),
            "lamps": ("int8", (3,)),
        }
        assert observed["doors"].num_values.tolist() == [3, 4]
        assert not isinstance(observed["lamps"], MultiDiscreteArray) and observed["lamps"].maximum.max() == 1
        assert observed["arm"][1].num_values == 5
        assert observed["camera"].maximum.max() == 255
        for number, timestep in enumerate((batch.reset(), batch.step(np.zeros(2, np.int32)))):
            for slot in range(2):
                shown = singles[slot].shown[number]
                single = tree.map_structure(lambda array, slot=slot: array[slot], timestep.observation)
                tree.map_structure(lambda leaf, value: leaf.validate(value), observed, single)
                np.testing.assert_array_equal(single["camera"], shown["camera"])
                np.testing.assert_array_equal(single["arm"][0], shown["arm"][0].astype(np.float32))
                assert single["arm"][1] == shown["arm"][1] + 2
                np.testing.assert_array_equal(single["doors"], shown["doors"] - [1, 0])
                np.testing.assert_array_equal(single["lamps"], shown["lamps"])


def test_nested_actions():
    action_space = spaces.Dict(
        {
            "gear": spaces.Discrete(3, start=-1),
            "wheel": spaces.Box(-0.1, 0.1, (2,), np.float64),
            "levers": spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[5, 0]), spaces.MultiBinary(2))),
        }
    )
    for singles, batch in batches(spaces.Discrete(2), action_space):
        acted = batch.spec.action
        assert acted["gear"] == specs.DiscreteArray(3, dtype=np.int32)
        assert acted["wheel"].dtype == np.float32
        batch.reset()
        # The largest and the smallest action of the spec: the environment checks that they are in its space.
        highest = tree.map_structure(lambda leaf: np.broadcast_to(leaf.maximum, leaf.shape), acted)
        lowest = tree.map_structure(lambda leaf: np.broadcast_to(leaf.minimum, leaf.shape), acted)
        batch.step(tree.map_structure(lambda low, high: np.stack([low, high]), lowest, highest))
        low, high = singles[0].taken[-1], singles[1].taken[-1]
        assert (low["gear"], high["gear"]) == (-1, 1)
        np.testing.assert_allclose([low["wheel"], high["wheel"]], [[-0.1, -0.1], [0.1, 0.1]], rtol=1e-6)
        np.testing.assert_array_equal([low["levers"][0], high["levers"][0]], [[5, 0], [6, 2]])
        np.testing.assert_array_equal([low["levers"][1], high["levers"][1]], [[0, 0], [1, 1]])


def test_discrete_actions_count_from_zero():
    for singles, batch in batches(spaces.Discrete(2), spaces.Discrete(3, start=7)):
        assert batch.spec.action == specs.DiscreteArray(3, dtype=np.int32)
        batch.reset()
        batch.step(np.array([0, 2], np.int32))
        assert [int(single.taken[-1]) for single in singles] == [7, 9]


def test_an_environment_that_writes_into_its_action_does_not_change_the_actors():
    class Clumsy(Mirror):
        def step(self, action):
            action[:] = 0
            return super().step(action)

    batch = GymnasiumBatch([Clumsy(spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32))], [0])
    batch.reset()
    actions = np.ones((1, 2), np.float32)
    batch.step(actions)
    assert (actions == 1).all()


def test_bounds_are_kept_where_they_are_finite():
    box = spaces.Box(np.array([-1, -np.inf]), np.array([np.inf, 3]), dtype=np.float64)
    for _, batch in batches(box, spaces.Box(-np.inf, np.inf, (1,), np.float32)):
        observed, acted, _ = batch.spec
        assert isinstance(observed, specs.BoundedArray)
        assert observed.minimum.tolist() == [-1, -np.inf] and observed.maximum.tolist() == [np.inf, 3]
        assert isinstance(acted, specs.BoundedArray) and not np.isfinite(acted.maximum).any()
    for _, batch in batches(spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(2)):
        assert type(batch.spec.observation) is specs.Array


def test_images_with_their_channels_first_are_turned():
    high = np.full((3, 12, 16), 255, np.uint8)
    high[1] = 7
    space = spaces.Dict(
        {"camera": spaces.Box(np.zeros_like(high), high), "stack": spaces.Box(-1, 1, (4, 20, 20), np.float64)}
    )
    for singles, batch in batches(space, spaces.Discrete(2)):
        camera, stack = batch.spec.observation["camera"], batch.spec.observation["stack"]
        assert camera.shape == (12, 16, 3) and stack.shape == (20, 20, 4)
        assert camera.maximum[0, 0].tolist() == [255, 7, 255]
        for number, timestep in enumerate((batch.reset(), batch.step(np.zeros(2, np.int32)))):
            for slot in range(2):
                shown = singles[slot].shown[number]
                assert timestep.observation["camera"].flags.c_contiguous
                np.testing.assert_array_equal(timestep.observation["camera"][slot], shown["camera"].transpose(1, 2, 0))
                np.testing.assert_array_equal(
                    timestep.observation["stack"][slot], shown["stack"].transpose(1, 2, 0).astype(np.float32)
                )


@pytest.mark.parametrize(
    "observation_space, action_space, message",
    [
        (spaces.Text(5), spaces.Discrete(2), "the observation space Text is not supported"),
        (
            spaces.Dict({"a": spaces.Dict({"mission": spaces.Text(5)})}),
            spaces.Discrete(2),
            "the observation space Text at 'a/mission' is not supported",
        ),
        (spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2)), "the action space Sequence is not supported"),
    ],
)
def test_spaces_that_are_not_supported_are_named(observation_space, action_space, message):
    with pytest.raises(CallboardError, match=message) as caught:
        GymnasiumBatch([Mirror(observation_space, action_space)], [0])
    assert "\n" not in str(caught.value)


def test_a_part_that_is_not_supported_can_be_left_out():
    assert error_of("Mission") == (
        "the observation space Text at 'mission' is not supported: Box, Discrete, MultiDiscrete, MultiBinary, Dict and "
        "Tuple are; give it a fixed size with env_wrappers [{name: FixedSizeObservations, text_length: 16}], or leave "
        "it out with gymnasium.wrappers.FilterObservation"
    )


def test_integers_of_an_action_are_choices():
    encoded = action_encoding(spaces.Box(np.array([-1, 5]), np.array([2, 6]), dtype=np.int64))
    assert encoded.spec == MultiDiscreteArray([4, 2])
    np.testing.assert_array_equal(decode(encoded, np.array([[0, 0], [3, 1]], np.int32), 2), [[-1, 5], [2, 6]])
    assert action_encoding(spaces.Box(3, 7, (), np.uint8)).spec == specs.DiscreteArray(5, dtype=np.int32)
    with pytest.raises(CallboardError, match=r"an action of int32\(2,\) has 4,294,967,296 values, too many to choose"):
        action_encoding(spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32))


@pytest.mark.parametrize("encode, role", [(action_encoding, "action"), (observation_encoding, "observation")])
def test_keys_that_have_no_order_are_refused_in_one_line(encode, role):
    part = spaces.Box(-9, 9, (1,), np.float32)
    with pytest.raises(CallboardError, match=f"the {role} space Dict at 'b' has keys of different types, 1, 'a': name"):
        encode(spaces.Dict({"b": spaces.Dict({1: part, "a": part})}))
    assert list(encode(spaces.Dict({2: part, 1: part}))) == [1, 2]


@pytest.mark.parametrize("encode, role", [(action_encoding, "action"), (observation_encoding, "observation")])
@pytest.mark.parametrize("low, high, shown", [(1, -1, "from 1.0 to -1.0"), (np.nan, 1, "nan"), (0, np.nan, "nan")])
def test_bounds_that_are_in_no_order_are_refused(encode, role, low, high, shown):
    space = spaces.Box(-1, 1, (3,), np.float32)
    space.low[1], space.high[1] = low, high
    with pytest.raises(CallboardError, match=f"the {role} at 'a' has numbers from .*: give its space bounds") as caught:
        encode(spaces.Dict({"a": space}))
    assert shown in str(caught.value)


@pytest.mark.parametrize("encode, role", [(action_encoding, "action"), (observation_encoding, "observation")])
def test_a_choice_without_values_is_refused(encode, role):
    space = spaces.MultiDiscrete([2, 3])
    space.nvec = np.array([0, 3])
    with pytest.raises(CallboardError, match=f"the {role} has a choice of 0 values: give it at least 1"):
        encode(space)


def test_a_number_that_no_float_holds_is_refused():
    encoded = observation_encoding(spaces.Box(-1, 1, (2,), np.float32))
    with pytest.raises(CallboardError, match=r"an observation that is not float32\(2,\): int too large"):
        stack(encoded, [[10**400, 0]])


@pytest.mark.parametrize(
    "observation_space, action_space, message",
    [
        (spaces.Box(-1, 1, (0,)), spaces.Discrete(2), r"has an observation of shape \(0,\), with nothing in it"),
        (spaces.Discrete(2), spaces.Box(-1, 1, (0,)), r"has an action of shape \(0,\), with nothing in it"),
        (spaces.Dict({}), spaces.Discrete(2), "shows nothing: its observation space is empty"),
        (spaces.Discrete(2), spaces.Dict({}), "has nothing to do: its action space is empty"),
    ],
)
def test_spaces_with_nothing_in_them_are_refused(observation_space, action_space, message):
    with pytest.raises(CallboardError, match=message):
        make(lambda: Mirror(observation_space, action_space), 1, [0])
