"""Specs of environments survive being written to a file."""

import json

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from callboard.environments import GymnasiumBatch
from callboard.environments.batches import encoding
from callboard.environments.batches.encoding import EnvironmentEncoding, encoding_of
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.batches.spec_files import format_spec, parse_spec
from callboard.specs import EnvironmentSpec, MultiDiscreteArray

SPACES = [
    spaces.Box(-np.inf, np.inf, (3,), np.float64),
    spaces.Box(np.array([-1, 0.1], np.float64), np.array([np.inf, 0.3]), dtype=np.float64),
    spaces.Box(0, 255, (4, 84, 84), np.uint8),
    spaces.Box(0, 255, (84, 84, 3), np.uint8),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [2, 3]])),
    spaces.MultiBinary(4),
    spaces.Dict({"arm": spaces.Dict({"angle": spaces.Box(-1, 1, ())}), "steps": spaces.Discrete(3)}),
    spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,)))),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: str(space)[:30])
def test_a_spec_is_read_as_it_was_written(space):
    action = action_encoding(SPACES[1] if isinstance(space, spaces.Box) else space)
    written = EnvironmentEncoding(observation_encoding(space), action).spec()
    text = format_spec(written)
    assert parse_spec(text) == written
    assert "Infinity" not in text
    assert written != parse_spec(format_spec(EnvironmentEncoding(observation_encoding(SPACES[0]), ()).spec()))


def test_the_bounds_of_an_image_take_one_number():
    text = format_spec(EnvironmentEncoding(observation_encoding(SPACES[2]), ()).spec())
    content = json.loads(text)["observation"]
    assert content == {
        "shape": [84, 84, 4],
        "dtype": "uint8",
        "minimum": 0,
        "maximum": 255,
        "channels_first": True,
    }


def test_a_spec_without_an_encoding_is_the_environments_own():
    spec = EnvironmentSpec({1: specs.Array((2,), np.float32), 3: MultiDiscreteArray([2, 3])}, specs.DiscreteArray(4))
    read = parse_spec(format_spec(spec))
    assert read[:2] == spec[:2]
    assert read.encoding == encoding_of(spec)
    # Arrays of three axes are not transposed.
    image = EnvironmentSpec(specs.BoundedArray((4, 84, 84), np.uint8, 0, 255), specs.DiscreteArray(4))
    assert parse_spec(format_spec(image)).observation.shape == (4, 84, 84)


def test_adapters_declare_their_encoding():
    environment = gymnasium.make("CartPole-v1")
    spec = GymnasiumBatch([environment], [1]).spec
    assert spec.encoding == EnvironmentEncoding(
        observation_encoding(environment.observation_space), encoding.choice(2, np.int64)
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "observation": {}, "action": {}}'])
def test_another_text_is_refused(text):
    with pytest.raises(ValueError):
        parse_spec(text)


@pytest.mark.parametrize(
    "dtype", ["S1000000000", "U9", "object", "M8[s]", [["x", "S9"]], {"names": ["x"], "formats": ["S9"]}]
)
@pytest.mark.parametrize("name", ["dtype", "environment_dtype"])
def test_dtypes_other_than_numbers_are_refused(dtype, name):
    content = json.loads(format_spec(EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(2))))
    content["observation"][name] = dtype
    with pytest.raises(ValueError, match="none of numbers|not the spec of an environment"):
        parse_spec(json.dumps(content))
