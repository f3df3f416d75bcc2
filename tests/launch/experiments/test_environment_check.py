"""The check of an environment in a process of its own, before anything of a run is created."""

import dataclasses
import functools
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys

import gymnasium
import psutil
import pytest
from slow_cases import slow_but

from callboard.agents.ppo import Ppo
from callboard.cli.command import main
from callboard.environments import is_of_library
from callboard.errors import CallboardError
from callboard.launch.experiments.environment_check import check_environment, environment_check
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.session import Session
from callboard.runtime.deadlines import wait_until

ENV = "faulty_environments:Faulty"


def experiment(fault="", **settings):
    return Experiment(agent=Ppo(), env=ENV, env_options={"fault": fault}, **settings)


def checked(given):
    check_environment(given, given.node_timeout)


def error_of(fault, **settings):
    with pytest.raises(CallboardError) as caught:
        checked(experiment(fault, **settings))
    assert "\n" not in str(caught.value)
    return caught.value


FAULTS = {
    "raise@constructor": f"environment '{ENV}': its constructor raises KeyError: 'no such map' (faulty_env",
    "raise@close": f"environment '{ENV}': 'close' raises KeyError: 'no such map' (faulty_env",
    "exit@constructor": f"environment '{ENV}' cannot be made: it calls sys.exit(3)",
    "exit@step": f"environment '{ENV}': 'step' calls sys.exit(3); let it raise an exception instead",
    "kill@reset": f"environment '{ENV}': 'reset' ends the process with exit code 3; let it raise an exception instead",
    "abort@step": f"environment '{ENV}': 'step' crashes the process (SIGABRT); let it raise an exception instead",
    "nan": f"environment '{ENV}', in 'step': the observation contains nan, no number",
    "reward": f"environment '{ENV}', in 'step': 'step' gives the reward nan",
}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("fault", slow_but(FAULTS, "exit@step", "abort@step", "nan"))
def test_what_is_wrong_is_found_with_its_cause(fault):
    assert str(error_of(fault)).startswith(FAULTS[fault])


@pytest.mark.slow("daily")
@pytest.mark.parametrize("fault", slow_but([*FAULTS, "exit@close"], "exit@constructor", "exit@step", "kill@reset"))
def test_what_is_wrong_is_found_with_its_cause_in_a_worker(fault):
    error = error_of(fault, env_python="same")
    if fault == "exit@close":
        assert str(error) == f"environment '{ENV}': 'close' calls sys.exit(3); let it raise an exception instead"
    else:
        assert str(error).replace("its worker", "the process").startswith(FAULTS[fault])
    assert error.details == "last words" or "kill" not in fault
    assert "in do" in error.details or "abort" not in fault


@pytest.mark.slow("daily")
@pytest.mark.parametrize("env_python", [None, "same"])
def test_the_traceback_is_the_users_own(env_python):
    details = error_of("raise@reset", env_python=env_python).details.splitlines()
    assert details[0] == "Traceback (most recent call last):" and details[-1] == "KeyError: 'no such map'"
    files = [line.split('"')[1] for line in details if line.startswith("  File")]
    assert [pathlib.Path(file).name for file in files] == ["faulty_environments.py"] * 2
    assert error_of("kill@reset").details == "last words"


@pytest.mark.slow("daily")
@pytest.mark.parametrize("where", ["step", "close"])
def test_what_hangs_is_named_and_ended(where):
    before = set(psutil.Process().children(recursive=True))
    for python in (None, "same"):
        error = str(error_of(f"hang@{where}", node_timeout=1.0, env_python=python))
        beginning = f"environment '{ENV}': '{where}' has not returned for 1 s; let it return"
        assert re.fullmatch(rf"{beginning}.* \(faulty_environments.py, line \d+\)", error)
    assert set(psutil.Process().children(recursive=True)) <= before


FORKING = {
    "in_processes": {},
    "Simulator": {},
    "Simulator each reset": {"each_reset": True},
    "Simulator spawn": {"method": "spawn"},
    "Simulator forkserver": {"method": "forkserver"},
}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", slow_but(FORKING, "in_processes", "Simulator spawn"))
def test_an_environment_may_start_processes(name):
    env = f"forking_environments:{name.partition(' ')[0]}"
    checked(Experiment(agent=Ppo(), env=env, env_options=FORKING[name], node_timeout=10.0))


@pytest.mark.slow("daily")
def test_a_constructor_that_waits_for_its_process_is_named_within_seconds(monkeypatch):
    monkeypatch.setattr("callboard.launch.experiments.environment_check._NOTICE_SECONDS", 1.0)
    notices = []

    def notify(text):
        if "the import of" not in text:
            notices.append(text)
            raise InterruptedError

    unanswered = Experiment(agent=Ppo(), env="forking_environments:Unanswered")
    with pytest.raises(InterruptedError), environment_check(unanswered, 300.0, notify):
        pass
    assert re.fullmatch(
        "environment 'forking_environments:Unanswered': its constructor has not returned for 1 s, at most 600 s; see "
        r"whether it waits for what it has started, process \d+, or .* \(forking_environments.py, line \d+\)",
        notices[0],
    )


def warnings_of(caplog):
    # Threads of nodes that other tests have ended may still write.
    return [record for record in caplog.records if record.name.endswith("environment_check")]


@pytest.mark.slow("daily")
def test_bounds_that_are_exceeded_are_reported_once(caplog):
    checked(experiment("outside"))
    (record,) = warnings_of(caplog)
    assert record.levelno == logging.WARNING and record.getMessage() == (
        f"environment '{ENV}' gives 7 in its observation, outside of the bounds of its space, -1 to 1: correct the "
        "bounds, which networks may scale by"
    )
    checked(experiment("outside"))
    assert len(warnings_of(caplog)) == 1, "an environment that has passed is not tried again"


@pytest.mark.slow("daily")
def test_a_class_of_the_program_is_sent_by_value(monkeypatch):
    from faulty_environments import Faulty

    import __main__

    kind = type("Own", (Faulty,), {"__module__": "__main__", "observation": lambda self: "text"})
    monkeypatch.setattr(__main__, "Own", kind, raising=False)
    wrong = dataclasses.replace(experiment(), env=kind, env_options={})
    assert wrong.env == "__main__:Own"
    with pytest.raises(CallboardError, match="environment '__main__:Own', in 'reset': the observation is of type"):
        checked(wrong)


def test_a_wrapper_of_the_program_is_known_where_the_environment_is_tried(monkeypatch):
    import __main__

    def __init__(self, env, marks):
        gymnasium.Wrapper.__init__(self, env)

    wrapper = type("OwnWrapper", (gymnasium.Wrapper,), {"__module__": "__main__", "__init__": __init__})
    monkeypatch.setattr(__main__, "OwnWrapper", wrapper, raising=False)
    given = Experiment(Ppo(), env="CartPole-v1", env_wrappers=[functools.partial(wrapper, marks=[1])])
    assert given.env_wrappers == ({"name": "__main__:OwnWrapper", "marks": [1]},)
    checked(given)


def test_what_is_not_checked(monkeypatch):
    assert is_of_library("CartPole-v1") and is_of_library("MinAtar/Breakout-v1") and is_of_library("ALE/Pong-v5")
    assert is_of_library("CartPole-v1", {"env_wrappers": "TimeLimit"}) and not is_of_library(ENV)
    assert not is_of_library("CartPole-v1", {"env_wrappers": [{"name": "mine:Wrapper"}]})
    assert not is_of_library(["CartPole-v1", ENV])
    checked(experiment("raise@reset", check_env=False))


def test_a_check_that_is_left_early_leaves_no_process():
    before = set(psutil.Process().children(recursive=True))
    # What a shell starts in the background ignores Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), environment_check(experiment("hang@reset"), 300.0):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert set(psutil.Process().children(recursive=True)) <= before


LEAVES_PROCESSES = """
import sys
from callboard.agents.ppo import Ppo
from callboard.launch.experiments.environment_check import check_environment
from callboard.launch.experiments.experiment import Experiment

options = {"started": sys.argv[1], "orphan": True, "hangs": sys.argv[2] == "killed"}
experiment = Experiment(agent=Ppo(), env="leaving_environments:LeavesProcesses", env_options=options)
check_environment(experiment, 600.0)
"""


@pytest.mark.slow("daily")
@pytest.mark.parametrize("end", ["returns", "killed"])
def test_what_the_environment_starts_ends_with_the_trial(tmp_path, end):
    started = tmp_path / "started"
    environments = pathlib.Path(__file__).parents[1] / "environments"
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVES_PROCESSES, started, end], env={**os.environ, "PYTHONPATH": str(environments)}
    )
    if end == "killed":
        # Two environments.
        assert wait_until(lambda: started.exists() and len(started.read_text().split()) == 6, 60)
        process.kill()
    process.wait(60)
    pids = list(map(int, started.read_text().split()))
    assert len(pids) == 6
    assert wait_until(lambda: not any(map(psutil.pid_exists, pids)), 10)


@pytest.mark.slow("daily")
def test_nothing_is_created(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "ppo", "--env", ENV, "--env-options.fault", "raise@step", "--launcher", "inline"]
    assert main(arguments) == 2
    error = capfd.readouterr().err.splitlines()
    assert error[-1].startswith(f"callboard: environment '{ENV}': 'step' raises KeyError") and len(error) == 7
    assert main(["graph", "ppo", "--env", ENV, "--env-options.fault", "exit@constructor"]) == 2
    with pytest.raises(CallboardError, match="'step' raises KeyError"), Session(experiment("raise@step"), "inline"):
        pass
    assert list(tmp_path.iterdir()) == []
