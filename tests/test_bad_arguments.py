"""Arguments of public functions that are of a wrong type, empty or out of range: each is refused in one line."""

# What type checkers refuse is tried here too.
# mypy: disable-error-code="arg-type"

import inspect

import pytest

import callboard
from callboard import CallboardError, Experiment, Session
from callboard.agents.ppo import Ppo
from callboard.environments import make
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.launchers.hosts.cluster_file import read_cluster
from callboard.launch.launchers.hosts.launcher import HostsLauncher
from callboard.launch.launchers.registry import make_launcher
from callboard.launch.run import make_run
from callboard.policy_client import PolicyClient
from callboard.specs import EnvironmentSpec
from callboard.studies.comparison.run_results import read_results

BAD = {"None": None, "text": "", "list": [], "zero": 0, "negative": -1, "object": object(), "bytes": b"x", "type": int}
EXPERIMENT = Experiment(Ppo(), env="CartPole-v1", run_dir="runs/none")
UNFIT = Experiment(Ppo(), env="CartPole-v1", run_dir="runs/none", max_steps=1, evaluator=False)
WITHOUT_AGENT = Experiment(None, env="CartPole-v1", run_dir="runs/none")
MISSING = "runs/missing"
FUNCTIONS = {
    callboard.compare: {"runs": MISSING},
    callboard.dataset_info: {"dataset": MISSING},
    callboard.dataset_video: {"dataset": MISSING, "episode": 0},
    callboard.estimate_value: {"policy": MISSING, "dataset": MISSING},
    callboard.evaluate: {"run": MISSING},
    callboard.export: {"run": MISSING, "path": "exported"},
    callboard.load_policy: {"source": MISSING},
    callboard.register_environment: {"name": "", "factory": 5},
    callboard.run: {"experiment": UNFIT, "launcher": "inline"},
    callboard.tune: {"experiment": EXPERIMENT, "search": {"seed": "none(1)"}},
    callboard.ActingPolicy: {"policy": None, "spec": None},
    make_run: {"experiment": UNFIT},
    make: {"env": "missing", "batch_size": 1, "seeds": [0]},
    make_launcher: {"name": "missing"},
    parse_experiment: {"agent": "missing", "recipe": {}, "options": ["--env", "CartPole-v1"]},
    read_cluster: {"path": "missing"},
    read_recipe: {"name": "missing"},
    read_results: {"names": MISSING, "metric": "evaluator/return", "include_running": False},
    PolicyClient: {"url": "", "token": ""},
}
"""Valid arguments of each function, but for one that lets it do nothing."""
DOCUMENTED = {make: (ValueError,), PolicyClient: (ValueError,)}
LEFT_OUT = {(read_results, "names"), (read_results, "metric"), (read_results, "include_running")}


def parameters():
    for function in FUNCTIONS:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD and (function, parameter.name) not in LEFT_OUT:
                yield pytest.param(function, parameter.name, id=f"{function.__name__}-{parameter.name}")


@pytest.mark.parametrize(("function", "name"), parameters())
def test_a_bad_argument_is_refused_in_one_line(function, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for bad in BAD.values():
        with pytest.raises((CallboardError, *DOCUMENTED.get(function, ()))) as caught:
            function(**{**FUNCTIONS[function], name: bad})
        assert str(caught.value) and "\n" not in str(caught.value)


def bad_calls():
    return [
        (lambda: callboard.run("ppo"), "experiment must be an Experiment, such as .*, not a str"),
        (lambda: Session(None), "experiment must be an Experiment"),
        (lambda: Session(EXPERIMENT, monitor=5), "monitor must have the methods status and notify, not be an int"),
        (lambda: Session(EXPERIMENT, add_nodes=5), "add_nodes must be a function"),
        (lambda: Session(EXPERIMENT, resume="no"), "resume must be True or False, not a str"),
        (lambda: callboard.compare([]), "name a run to compare"),
        (lambda: callboard.compare(MISSING, group_by="seed"), "group_by must be a list of texts"),
        (lambda: callboard.compare(MISSING, labels=5), "labels must be names of groups"),
        (lambda: callboard.dataset_video(MISSING, "x"), "episode must be a whole number, not 'x'"),
        (lambda: callboard.load_policy(MISSING, trust="no"), "trust must be True or False"),
        (lambda: callboard.tune(EXPERIMENT, {}), "search must be distributions"),
        (lambda: callboard.tune(EXPERIMENT, {"seed": "randint(1, 9)"}, run_dir=5), "name the search by a path"),
        (lambda: callboard.estimate_value(MISSING, MISSING, settings={"steps": 0}), "settings.steps must be a whole"),
        (lambda: callboard.estimate_value(MISSING, MISSING, seed=-1), "seed must be a whole number of at least 0"),
        (lambda: callboard.ActingPolicy(None, EnvironmentSpec({}, {})), "policy must be what Agent.make_policy gives"),
        (lambda: make("CartPole-v1", None, [0]), "batch_size must be a whole number"),
        (lambda: HostsLauncher(clster="x"), "unknown argument 'clster'; did you mean 'cluster'"),
        (lambda: make("CartPole-v1", 2, sedes=[0, 1]), "unknown argument 'sedes' of make; did you mean 'seeds'"),
        (lambda: make_launcher(5), "launcher must be the name of a launcher"),
        (lambda: PolicyClient("http://localhost:1", 5), "token and ca_file are texts"),
        (lambda: PolicyClient("http://localhost:1", "t", timeout=None), "timeout must be a number of seconds"),
        (lambda: read_results(5, "x", False), "names must be a list of runs"),
        (lambda: callboard.run(WITHOUT_AGENT, "inline"), "the experiment has no agent: name one"),
        (lambda: Session(WITHOUT_AGENT), "the experiment has no agent: name one"),
        (
            lambda: callboard.evaluate(MISSING, n_episodes=5),
            "unknown argument 'n_episodes' of evaluate; did you mean 'epis",
        ),
        (lambda: callboard.evaluate(MISSING, steps=5), "'steps' of evaluate; it takes run, episodes, mode, epsilon"),
        (lambda: callboard.load_policy(MISSING, deterministic=True), "of load_policy; did you mean 'mode'"),
        (lambda: callboard.export(MISSING, fromat="onnx"), "of export; did you mean 'format'"),
        (lambda: callboard.run(EXPERIMENT, launchr="inline"), "of run; did you mean 'launcher'"),
        (lambda: Session(EXPERIMENT, launchr="inline"), "of Session; did you mean 'launcher'"),
        (lambda: Session(UNFIT).train(total_timesteps=5), "of Session.train; did you mean 'steps'"),
        (lambda: Session(UNFIT).close(save=True), "unknown argument 'save' of Session.close; it takes none"),
        (lambda: callboard.ActingPolicy(None, None, sed=3), "of ActingPolicy; did you mean 'seed'"),
        (
            lambda: callboard.ActingPolicy.__call__(None, 0, deterministic=True),
            "of ActingPolicy; it takes observation, st",
        ),
        (lambda: callboard.dataset_info(data="x"), "of dataset_info; did you mean 'dataset'"),
        (lambda: callboard.dataset_video(MISSING, 0, paht="x"), "of dataset_video; did you mean 'path'"),
        (lambda: callboard.estimate_value(MISSING, MISSING, gamma=0.9), "of estimate_value; did you mean 'discount'"),
        (lambda: callboard.register_environment("a", creator=5), "of register_environment; it takes name, factory"),
    ]


@pytest.mark.parametrize(("call", "message"), bad_calls())
def test_a_message_names_the_argument(call, message):
    with pytest.raises((CallboardError, ValueError), match=message):
        call()
