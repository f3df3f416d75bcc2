"""Spaces that are too large are refused in one line, before anything is allocated, wherever they come from."""

import json

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from callboard import environments
from callboard.environments import make_multi_agent
from callboard.environments.adapters.dm_env_adapter import spec_encoding
from callboard.environments.batches.batched import BatchedEnvironment
from callboard.environments.batches.fixed_sizes import FixedSizeObservations
from callboard.environments.batches.space_sizes import MOST_PARTS
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.batches.spec_files import parse_spec
from callboard.environments.multi_agent.agent_padding import PaddedAgents
from callboard.environments.recorded.dataset_metadata import _space as recorded_space
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

HUGE = 2**40
SMALL = spaces.Box(-1, 1, (2,), np.float32)


class Shape(spaces.Box):
    """A `Box` that takes no memory: its bounds are one number each."""

    def __init__(self, *shape):
        super().__init__(-1, 1, (1,), np.float32)
        self._shape = shape
        self.low, self.high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)


def nested(space, depth):
    for _ in range(depth):
        space = spaces.Dict(a=space)
    return space


def parts(count):
    return {f"p{index}": SMALL for index in range(count)}


BOTH = {
    "a discrete space": (spaces.Discrete(HUGE), "1,099,511,627,776 values, too many for one-hot"),
    "many choices": (spaces.MultiDiscrete([3, HUGE]), "values, too many for one-hot"),
    "many choices together": (spaces.MultiDiscrete(np.full((10, 10), 50_000)), "values, too many for one-hot"),
    "in a dictionary": (spaces.Dict(id=spaces.Discrete(HUGE), place=SMALL), "at 'id' has"),
    "in tuples": (spaces.Tuple((SMALL, spaces.Dict(b=spaces.Discrete(HUGE)))), "at '1/b' has"),
    "a box": (Shape(2**36), "has 68,719,476,736 numbers, more than"),
    "a box of many axes": (Shape(2**12, 2**12, 2**12), "has 68,719,476,736 numbers, more than"),
    "bits": (spaces.MultiBinary(2**36), "has 68,719,476,736 numbers, more than"),
    "axes": (spaces.MultiBinary([1] * 31), "has 31 axes, more than 30"),
    "depth": (nested(SMALL, 2000), "nested deeper than 32 levels"),
    "the last of a discrete space": (spaces.Discrete(3, start=2**63 - 2), "9223372036854775808, which int64 cannot"),
    "the last of choices": (
        spaces.MultiDiscrete([100, 2], dtype=np.int8, start=[100, 0]),
        "is 199, which int8 cannot hold: let its values begin at a smaller number",
    ),
}
WHOLE = {
    "parts of a dictionary": spaces.Dict(parts(MOST_PARTS + 1)),
    "parts of a tuple": spaces.Tuple([SMALL] * (MOST_PARTS + 1)),
}


def one_line(caught):
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
    return str(caught.value)


@pytest.mark.parametrize("encode, role", [(observation_encoding, "observation"), (action_encoding, "action")])
@pytest.mark.parametrize("space, says", BOTH.values(), ids=list(BOTH))
def test_a_space_of_gymnasium_that_is_too_large_is_refused(space, says, encode, role):
    with pytest.raises(CallboardError) as caught:
        encode(space)
    assert says in one_line(caught) and ("cannot" in says or role in str(caught.value))


def test_an_action_has_fewer_numbers_than_an_observation():
    assert observation_encoding(Shape(10**7)).spec.shape == (10**7,)
    with pytest.raises(CallboardError, match="^the action has 10,000,000 numbers, more than 1,000,000: give the space"):
        action_encoding(Shape(10**7))
    with pytest.raises(CallboardError, match="values, too many for one-hot"):
        environments.make(lambda: Made(action=spaces.MultiBinary(600_000)), 1, [0])


def test_large_ones_are_taken():
    assert observation_encoding(spaces.Discrete(100_000)).spec.num_values == 100_000
    assert observation_encoding(spaces.Discrete(3, start=2**62)).start == 2**62
    assert len(observation_encoding(spaces.Dict(parts(MOST_PARTS)))) == MOST_PARTS


class Made(gymnasium.Env):
    action_space = spaces.Discrete(2)

    def __init__(self, observation=SMALL, action=None):
        self.observation_space = observation
        self.action_space = action or self.action_space


class MadeDm(dm_env.Environment):
    def __init__(self, observation):
        self._observation = observation

    def observation_spec(self):
        return self._observation

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        raise AssertionError

    step = reset


class MadeBatch(BatchedEnvironment):
    batch_size = 1
    spec = EnvironmentSpec(specs.Array((2**36,), np.float32), specs.DiscreteArray(2))

    def reset(self):
        raise AssertionError

    def step(self, actions):
        raise AssertionError

    render = reset

    def close(self):
        pass


class MadeAgents:
    """Of PettingZoo; the agents have the spaces that are given, and a state of a size of its own."""

    metadata: dict = {}
    state_space = Shape(2**36)

    def __init__(self, *own):
        self.possible_agents = [f"a{index}" for index in range(len(own))]
        self.own = dict(zip(self.possible_agents, own, strict=True))
        self.unwrapped = self

    def observation_space(self, agent):
        return self.own[agent]

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        raise AssertionError

    step = state = reset

    def close(self):
        pass


class MadeRllib:
    possible_agents = ["a"]
    observation_space, action_space = Shape(2**36), spaces.Discrete(2)

    def reset(self):
        raise AssertionError

    step = reset


@pytest.mark.parametrize("space", WHOLE.values(), ids=list(WHOLE))
@pytest.mark.parametrize("role", ["observation", "action"])
def test_environments_of_too_many_parts_are_refused(space, role):
    with pytest.raises(CallboardError, match=rf"the {role} has 257 parts, more than 256: put those of one kind into"):
        environments.make(lambda: Made(**{role: space}), 1, [0])


@pytest.mark.parametrize(
    "made",
    [lambda: Made(Shape(2**36)), lambda: MadeDm(specs.Array((2**36,), np.float32)), MadeBatch],
    ids=["Gymnasium", "dm_env", "a batch of one's own"],
)
def test_environments_are_refused_before_they_are_reset(made):
    with pytest.raises(
        CallboardError, match="the observation has 68,719,476,736 numbers, more than 33,554,432"
    ) as caught:
        environments.make(made, 1, [0])
    one_line(caught)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made, options, says",
    [
        (lambda: MadeAgents(Shape(2**36)), {}, "the observation has 68,719,476,736 numbers"),
        (MadeRllib, {}, "the observation has 68,719,476,736 numbers"),
        (lambda: MadeAgents(SMALL), {"state": "environment"}, "the observation has 68,719,476,738 numbers"),
        (
            lambda: MadeAgents(Shape(2**20, 1), Shape(1, 2**20)),
            {"padding": True},
            "the observation at 'observation' has 1,099,511,627,776 numbers",
        ),
        (lambda: MadeAgents(*[Shape(2**24)] * 3), {"groups": {"all": "*"}}, "the observation has 50,331,651 numbers"),
    ],
    ids=["PettingZoo", "RLlib", "state", "padding", "groups"],
)
def test_several_agents_are_refused(made, options, says):
    with pytest.raises(CallboardError) as caught:
        make_multi_agent(made, 0, **options)
    assert says in one_line(caught)


@pytest.mark.parametrize(
    "spec, says",
    [
        (specs.Array((2**36,), np.float32), "has 68,719,476,736 numbers"),
        (specs.DiscreteArray(HUGE, np.int64), "too many for one-hot"),
        ({"a": [specs.Array((HUGE,), np.uint8)]}, "at 'a/0' has 1,099,511,627,776 numbers"),
    ],
    ids=["numbers", "choices", "a part"],
)
def test_specs_of_dm_env(spec, says):
    with pytest.raises(CallboardError, match=says):
        spec_encoding(spec, "observation")


def test_specs_of_dm_env_that_are_nested_too_deep():
    spec = specs.Array((), np.float32)
    for _ in range(2000):
        spec = {"a": spec}
    with pytest.raises(CallboardError, match="nested deeper than 32 levels"):
        spec_encoding(spec, "observation")


class Talks(Made):
    def __init__(self, space):
        super().__init__(spaces.Dict(said=space, place=SMALL))


@pytest.mark.parametrize(
    "space, sizes, says",
    [
        (spaces.Text(HUGE), {"text_length": HUGE}, "at 'said' has 1,099,511,627,776 numbers"),
        (spaces.Sequence(SMALL), {"sequence_length": HUGE}, "at 'said' has 2,199,023,255,552 numbers"),
        (spaces.Sequence(spaces.Discrete(HUGE)), {"sequence_length": 2}, "at 'said' has 2,199,023,255,552 numbers"),
        (spaces.Sequence(spaces.MultiBinary(2**36)), {"sequence_length": 2}, "at 'said' has 137,438,953,472 numbers"),
    ],
    ids=["text", "sequence", "elements", "bits"],
)
def test_texts_and_sequences_of_fixed_sizes(space, sizes, says):
    with pytest.raises(CallboardError) as caught:
        FixedSizeObservations(Talks(space), **sizes)
    assert says in one_line(caught)


FILES = {
    "a box": {"type": "Box", "shape": [2**36]},
    "bits": {"type": "MultiBinary", "n": 2**36},
    "bits of two axes": {"type": "MultiBinary", "n": [2**18, 2**18]},
    "a part": {"type": "Dict", "spaces": {"a": {"type": "Tuple", "spaces": [{"type": "Box", "shape": [2**36]}]}}},
    "choices": {"type": "Discrete", "n": 2**36},
}


@pytest.mark.parametrize("space", FILES.values(), ids=list(FILES))
def test_files_of_spaces(tmp_path, space):
    path = tmp_path / "spaces.json"
    path.write_text(json.dumps({"observation": space, "action": {"type": "Discrete", "n": 2}}))
    with pytest.raises(CallboardError, match=r"has 68,719,476,736 (numbers|values)") as caught:
        environments.make(f"external:{path}", 1, [0])
    one_line(caught)


def test_files_of_spaces_that_are_nested_too_deep(tmp_path):
    space = {"type": "Box", "shape": [2]}
    for _ in range(100):
        space = {"type": "Tuple", "spaces": [space]}
    path = tmp_path / "spaces.json"
    path.write_text(json.dumps({"observation": space, "action": {"type": "Discrete", "n": 2}}))
    with pytest.raises(CallboardError, match="nested deeper than 32 levels"):
        environments.make(f"external:{path}", 1, [0])


@pytest.mark.parametrize(
    "space, says",
    [
        ({"type": "Box", "dtype": "float32", "shape": [2**36], "low": [-1], "high": [1]}, "68,719,476,736 elements"),
        ({"type": "MultiBinary", "n": 2**36}, "68,719,476,736 elements"),
        ({"type": "Discrete", "dtype": "int64", "start": 0, "n": 2**36}, "are not from 1 to 1,000,000"),
    ],
)
def test_spaces_of_data_sets(space, says):
    pytest.importorskip("minari")
    with pytest.raises(CallboardError, match=says):
        recorded_space({"observation_space": json.dumps(space)}, "observation_space")


def test_spaces_of_trained_runs():
    leaf = {"shape": [2**36], "dtype": "float32"}
    text = json.dumps({"format": 1, "observation": leaf, "action": {"shape": [], "dtype": "int32", "num_values": 2}})
    with pytest.raises(CallboardError, match="has 68,719,476,736 numbers"):
        parse_spec(text)


def test_padding_of_agents_is_checked_before_it_is_made():
    class Two:
        agents = ("a", "b")
        specs = {
            "a": EnvironmentSpec(specs.BoundedArray((2**20, 1), np.uint8, 0, 1), specs.DiscreteArray(2)),
            "b": EnvironmentSpec(specs.BoundedArray((1, 2**20), np.uint8, 0, 1), specs.DiscreteArray(2)),
        }

    with pytest.raises(CallboardError, match="the observation at 'observation' has 1,099,511,627,776 numbers"):
        PaddedAgents(Two())
