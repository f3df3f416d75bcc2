"""Settings of a policy server: what follows from them, and what a run with one cannot have."""

import pathlib
import socket
import subprocess
import sys

import pytest

from callboard import Experiment
from callboard.agents.ppo import Ppo
from callboard.agents.sac import Sac
from callboard.errors import CallboardError
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.launchers.registry import make_launcher

SPACES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "external_simulators" / "spaces.json"
SERVED = {"spaces": str(SPACES), "policy_server": "127.0.0.1:8650"}


def test_each_simulator_is_an_actor_and_there_is_no_evaluator():
    assert Experiment(Ppo(), **SERVED).actors == Experiment(Sac(), **SERVED).actors == 32
    experiment = Experiment(Ppo(), actors=2, envs_per_actor=4, **SERVED)
    layout = check_experiment(experiment).whole
    assert (layout.actors, layout.envs_per_actor, experiment.acting_nodes) == (8, 1, 1)
    assert not experiment.evaluator
    assert experiment.env == f"external:{SPACES}"
    assert layout.spec.action.num_values == 2


def test_the_spaces_may_be_those_of_an_environment_which_evaluations_use():
    experiment = Experiment(Ppo(), env="CartPole-v1", policy_server="127.0.0.1:8650")
    check_experiment(experiment)
    assert experiment.evaluator


def test_a_path_of_spaces_holds_in_other_directories(monkeypatch):
    monkeypatch.chdir(SPACES.parent)
    experiment = Experiment(Ppo(), spaces="spaces.json", policy_server="127.0.0.1:8650")
    assert experiment.spaces == str(SPACES)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"policy_server": None}, "set policy_server"),
        ({"policy_server": "8650"}, "write HOST:PORT"),
        ({"policy_server": "127.0.0.1:0"}, "write HOST:PORT"),
        ({"policy_server": "127.0.0.1:70000"}, "write HOST:PORT"),
        ({"policy_server": "::1:8650"}, "write HOST:PORT"),
        ({"env": "CartPole-v1"}, "leave spaces out"),
        ({"spaces": "none.json"}, "cannot be read"),
        ({"policy_server_token_file": "none"}, "cannot be read"),
        ({"policy_server_certificate": "none.pem"}, "cannot be read"),
        ({"policy_server_key": "none.pem"}, "without its certificate"),
        ({"inference": "central"}, "has no inference central"),
        ({"learners": 2}, "has no learners above 1"),
        ({"env_previous_inputs": True}, "has no env_previous_inputs"),
        ({"episode_metrics": "distance"}, "has no episode_metrics"),
        ({"curriculum": ({"task": 1, "steps": 5},)}, "has no curriculum"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises(CallboardError, match=message):
        check_experiment(Experiment(Ppo(), **{**SERVED, **settings}))


def test_tokens_that_are_refused(tmp_path):
    path = tmp_path / "token"
    for text, mode, message in [("short", 0o600, "16 to"), ("a b" * 9, 0o600, "16 to"), ("x" * 20, 0o644, "chmod 600")]:
        path.write_text(text)
        path.chmod(mode)
        with pytest.raises(CallboardError, match=message):
            check_experiment(Experiment(Ppo(), **SERVED, policy_server_token_file=str(path)))


@pytest.mark.parametrize("launcher, fits", [("inline", False), ("ray", False), ("threads", True), ("processes", True)])
def test_launchers(launcher, fits):
    experiment = Experiment(Ppo(), **SERVED)
    if fits:
        make_launcher(launcher).check(experiment)
        return
    with pytest.raises(CallboardError, match="could serve policy_server"):
        make_launcher(launcher).check(experiment)


IN_USE = """
import sys
from callboard.errors import CallboardError
from callboard.cli.train import main
try:
    main(sys.argv[1:])
except CallboardError as error:
    print(error, "tensorflow" in sys.modules)
"""


def test_an_address_in_use_is_reported_before_tensorflow_is_imported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options = ["ppo", "--policy-server", f"127.0.0.1:{port}", "--spaces", SPACES, "--run-dir", "run"]
        command = [sys.executable, "-c", IN_USE, *map(str, options)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use; choose another" in done.stdout, done.stderr
    assert done.stdout.endswith(" False\n")
    assert not (tmp_path / "run").exists()
