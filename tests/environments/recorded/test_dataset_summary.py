"""The numbers of a data set."""

import numpy as np
import pytest
from dm_env import specs as dm_specs
from gymnasium import spaces
from recorded_sets import write

from callboard.cli.dataset import _rows
from callboard.environments.batches.encoding import EnvironmentEncoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.recorded import open_data
from callboard.environments.recorded.dataset_summary import statistics, summarize
from callboard.specs import EnvironmentSpec

pytest.importorskip("minari")

ACTION = {"arm": dm_specs.BoundedArray((2,), np.float32, -1.0, 1.0), "mode": dm_specs.DiscreteArray(3, np.int32)}
SPEC = EnvironmentSpec(dm_specs.Array((2,), np.float32), ACTION)


def episode(rewards, terminated, mode):
    length = len(rewards)
    return {
        "observation": np.zeros((length + 1, 2), np.float32),
        "action": {"arm": np.tile(np.array([0.5, -0.25], np.float32), (length, 1)), "mode": np.full(length, mode)},
        "reward": rewards,
        "terminated": terminated,
    }


def test_returns_lengths_ends_and_actions(tmp_path):
    path = write(tmp_path / "set-v0", SPEC, [episode([1.0, 2.0], True, 2), episode([-4.0], False, 0)])
    info = summarize(open_data(path), "an environment", 3)
    assert info.returns.tolist() == [3.0, -4.0] and info.lengths.tolist() == [2, 1]
    assert info.terminated.tolist() == [True, False]
    assert [one.name for one in info.actions] == ["arm/0", "arm/1", "mode"]
    assert info.actions[1].values.tolist() == [-0.25] * 3
    np.testing.assert_allclose(info.actions[2].fractions, [1 / 3, 0, 2 / 3])
    plain = info.plain
    assert (plain["steps"], plain["terminated"], plain["seed"]) == (3, 1, 3)
    assert plain["returns"]["mean"] == -0.5 and plain["actions"]["arm/0"]["max"] == 0.5
    assert info.size > 0


def test_choices_are_numbered_as_the_environment_does(tmp_path):
    action = action_encoding(spaces.Dict({"turn": spaces.Discrete(3, start=-1), "two": spaces.MultiDiscrete([2, 3])}))
    spec = EnvironmentEncoding(observation_encoding(spaces.Box(-1, 1, (2,))), action).spec()
    turned = {**episode([1.0, 2.0], True, 0), "action": {"turn": np.array([1, -1]), "two": np.array([[0, 2], [1, 0]])}}
    info = summarize(open_data(write(tmp_path / "set-v0", spec, [turned])))
    assert [(one.name, one.first) for one in info.actions] == [("turn", -1), ("two/0", 0), ("two/1", 0)]
    np.testing.assert_allclose(info.actions[0].fractions, [0.5, 0, 0.5])
    assert info.plain["actions"]["turn"] == {"-1": 0.5, "0": 0.0, "1": 0.5}
    assert any(line == ("action turn", "-1: 50.0%, 0: 0.0%, 1: 50.0%") for line in _rows(info))


def test_an_empty_data_set_has_no_statistics(tmp_path):
    info = summarize(open_data(write(tmp_path / "set-v0", SPEC, [])))
    assert len(info.returns) == 0 and info.actions == () and info.plain["returns"] == {}
    assert statistics(np.array([1.0, 3.0]))["std"] == 1.0
