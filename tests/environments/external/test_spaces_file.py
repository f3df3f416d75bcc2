"""Files of spaces: they give what was written, and every mistake is one line that names it."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from callboard import environments
from callboard.environments.external.spaces_file import read_spaces, write_spaces
from callboard.errors import CallboardError

NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "parts": spaces.Tuple([spaces.MultiBinary(3), spaces.Discrete(3, start=1)]),
        "speed": spaces.Box(np.array([0, -np.inf]), np.array([1, np.inf]), dtype=np.float64),
        "flag": spaces.Box(0, 1, (2,), np.int8),
    }
)


@pytest.mark.parametrize("action", [spaces.Discrete(2), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 2, (3,))])
def test_spaces_are_read_as_they_were_written(tmp_path, action):
    write_spaces(tmp_path / "spaces.json", NESTED, action)
    assert read_spaces(tmp_path / "spaces.json") == (NESTED, action)
    spec = environments.spec(f"external:{tmp_path / 'spaces.json'}")
    assert sorted(spec.observation) == ["camera", "flag", "parts", "speed"]


def test_spaces_that_cannot_be_written_leave_those_before(tmp_path, monkeypatch):
    path = tmp_path / "spaces.json"
    write_spaces(path, NESTED, spaces.Discrete(2))

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(CallboardError, match="spaces.json cannot be written: No space left on device"):
        write_spaces(path, NESTED, spaces.Discrete(3))
    assert read_spaces(path) == (NESTED, spaces.Discrete(2))


WRONG = {
    "no JSON": ("{", "is not JSON"),
    "one space": ({"observation": {"type": "Discrete", "n": 2}}, "write"),
    "no type": ({"n": 2}, "must be a space such as"),
    "an unknown type": ({"type": "Discret", "n": 2}, "did you mean 'Discrete'"),
    "an unknown key": ({"type": "Box", "shape": [2], "lo": 0}, "unknown key of the Box"),
    "no shape": ({"type": "Box"}, "has no 'shape'"),
    "a negative number": ({"type": "Discrete", "n": -2}, "is no space"),
    "a dtype of objects": ({"type": "Box", "shape": [2], "dtype": "object"}, "dtype object"),
    "bounds of another shape": ({"type": "Box", "shape": [2], "low": [0, 0, 0]}, "is no space"),
    "parts that are a list": ({"type": "Dict", "spaces": []}, "is no space"),
    "a part that is wrong": ({"type": "Tuple", "spaces": [{"type": "Discrete"}]}, "observation/0 has no 'n'"),
}


@pytest.mark.parametrize("content, message", WRONG.values(), ids=list(WRONG))
def test_mistakes(tmp_path, content, message):
    if isinstance(content, dict) and "observation" not in content:
        content = {"observation": content, "action": {"type": "Discrete", "n": 2}}
    path = tmp_path / "spaces.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(CallboardError, match=message) as caught:
        environments.check(f"external:{path}")
    assert "\n" not in str(caught.value)


def test_they_cannot_be_stepped(tmp_path):
    write_spaces(tmp_path / "spaces.json", NESTED, spaces.Discrete(2))
    name = f"external:{tmp_path / 'spaces.json'}"
    environment = environments.make(name, 2, [0, 1])
    with pytest.raises(CallboardError, match="cannot be stepped from here"):
        environment.reset()
    with pytest.raises(CallboardError, match="has no option 'size'"):
        environments.make(name, 1, [0], {"size": 3})
    with pytest.raises(CallboardError, match="cannot be read: No such file"):
        environments.check("external:none.json")
