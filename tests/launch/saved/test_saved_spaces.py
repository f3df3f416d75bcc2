"""An environment that a run continues with, or is evaluated in: its spaces must be those of the training."""

import json
import re

import numpy as np
import pytest
from dm_env import specs
from untrained_runs import DEFAULTS, write_run

from callboard.cli.command import main
from callboard.environments.batches.spec_files import format_spec
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import read_experiment
from callboard.launch.launchers.registry import make_launcher
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.runs.prepared_run import prepared_run
from callboard.launch.saved.saved_policies import check_same_spaces
from callboard.specs import EnvironmentSpec, MultiDiscreteArray

SPACES = "it was trained with observations float32(4,) and actions 2 choices, and these are float32(6,) and 3 choices"


def test_a_resumed_run_cannot_change_its_spaces(tmp_path):
    write_run(tmp_path / "x")
    options = ["--env=Acrobot-v1", "--no-env-options.max_episode_steps"]
    experiment = read_experiment(tmp_path / "x", options)
    message = (
        f"^a resumed run cannot change its environment: {SPACES.replace('(', '.').replace(')', '.')}; start a new run"
    )
    with pytest.raises(CallboardError, match=message):
        with prepared_run(experiment, make_launcher("inline", {}), True, None, False):
            pass


@pytest.fixture
def evaluated(tmp_path, capsys):
    def evaluate(*options):
        code = main(["evaluate", str(tmp_path / "x"), "--episodes", "2", "--json", *options])
        out, err = capsys.readouterr()
        return json.loads(out)["returns"] if code == 0 else err

    return evaluate


@pytest.mark.slow("daily")
def test_a_policy_plays_in_another_environment_with_the_same_spaces(tmp_path, evaluated):
    write_run(tmp_path / "x", options=DEFAULTS)
    assert evaluated() == [7.0, 7.0]
    # The run's limit of 7 steps is an option of its own environment.
    assert max(evaluated("--env", "gymnasium:CartPole-v0")) > 7
    assert evaluated("--env=CartPole-v0", "--env-options.max_episode_steps", "5") == [5.0, 5.0]
    limit = "[{name: TimeLimit, max_episode_steps: 3}]"
    assert evaluated("--env", "CartPole-v0", "--env-wrappers", limit) == [3.0, 3.0]
    assert f"the policy cannot act in this environment: {SPACES}; name one with the same spaces" in evaluated(
        "--env", "Acrobot-v1"
    )
    assert "did you mean 'CartPole-v1'?" in evaluated("--env", "CartPol-v1")


def test_bounds_may_differ_and_nothing_else(tmp_path):
    directory = RunDirectory(tmp_path)
    spaces = {"camera": specs.Array((8, 8, 3), np.uint8), "speed": specs.BoundedArray((2,), np.float32, -1.0, 1.0)}
    action = specs.DiscreteArray(3)
    check_same_spaces(directory, EnvironmentSpec(spaces, action), "no", "fix it")
    directory.environment.write_text(format_spec(EnvironmentSpec(spaces, action)))
    wider = {**spaces, "speed": specs.BoundedArray((2,), np.float32, -5.0, 5.0)}
    check_same_spaces(directory, EnvironmentSpec(wider, action), "no", "fix it")
    for other, text in (
        ({"camera": spaces["camera"]}, "{camera: uint8(8, 8, 3)}"),
        ({**spaces, "speed": specs.Array((2,), np.int64)}, "{camera: uint8(8, 8, 3), speed: int64(2,)}"),
    ):
        with pytest.raises(CallboardError, match=re.escape(f"these are {text} and 3 choices; fix it")):
            check_same_spaces(directory, EnvironmentSpec(other, action), "no", "fix it")
    with pytest.raises(CallboardError, match=r"speed: float32\(2,\)\} and choices \[2, 3\]; fix it"):
        check_same_spaces(directory, EnvironmentSpec(spaces, MultiDiscreteArray([2, 3])), "no", "fix it")
