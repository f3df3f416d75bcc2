"""Settings: options and YAML to experiments and back, and one line for every mistake."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import types

import pytest
import yaml

from callboard.agents.impala import Impala
from callboard.cli.command import main
from callboard.environments import WeightedEnvironment
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import (
    parse_experiment,
    read_experiment,
    read_recipe,
    read_recipes,
    recipe_names,
    write_experiment,
)
from callboard.settings.nested_settings import declared_fields, from_values


def test_every_field_of_agent_and_experiment_is_an_option():
    experiment = parse_experiment(
        "impala",
        {},
        [
            "--env",
            "CartPole-v1",
            "--agent.optimizer.learning-rate",
            "3e-4",
            "--agent.network.hidden-sizes=[32, 16]",
            "--max-steps",
            "5",
        ]
        + ["--env-options.render_mode", "rgb_array", "--evaluator", "false", "--stop-return=1.5"],
    )
    assert experiment == Experiment(
        agent=from_values(Impala, {"optimizer.learning_rate": 3e-4, "network.hidden_sizes": (32, 16)}),
        env="CartPole-v1",
        env_options={"render_mode": "rgb_array"},
        max_steps=5,
        evaluator=False,
        stop_return=1.5,
    )


def test_a_flag_may_stand_alone():
    options = ["--env", "CartPole-v1", "--checkpoint-replay", "--seed", "3"]
    assert parse_experiment("impala", {}, options).checkpoint_replay
    assert parse_experiment("impala", {}, [*options, "--evaluator", "false", "--checkpoint-replay"]).checkpoint_replay
    assert not parse_experiment("impala", {}, ["--env", "A", "--checkpoint-replay", "false"]).checkpoint_replay


def test_options_come_before_the_recipe():
    recipe = {"agent": {"name": "impala", "batch_size": 8, "discount": 0.9}, "env": "A", "actors": 7, "seed": 3}
    experiment = parse_experiment(None, recipe, ["--actors", "1", "--agent.batch-size", "4"])
    assert (experiment.actors, experiment.seed, experiment.env) == (1, 3, "A")
    assert experiment.agent == Impala(batch_size=4, discount=0.9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, expected",
    [
        (["--env-options.time_limit", "20"], {"size": 5, "time_limit": 20, "camera": {"width": 8, "height": 8}}),
        (["--env-options", "{size: 7}"], {"size": 7, "camera": {"width": 8, "height": 8}}),
        (["--env-options", "{camera: {width: 4}}"], {"size": 5, "camera": {"width": 4, "height": 8}}),
        (["--env-options.size=6", "--env-options.size=7"], {"size": 7, "camera": {"width": 8, "height": 8}}),
        (["--env-options.camera.width", "1e1"], {"size": 5, "camera": {"width": 10.0, "height": 8}}),
        (["--no-env-options.camera.width"], {"size": 5, "camera": {"height": 8}}),
        (["--no-env-options.camera", "--env-options.size", "null"], {"size": None}),
    ],
)
def test_options_are_merged_into_nested_settings(tmp_path, options, expected):
    env_options = {"size": 5, "camera": {"width": 8, "height": 8}}
    recipe = {"agent": {"name": "impala"}, "env": "A", "env_options": env_options}
    assert parse_experiment(None, recipe, options).env_options == expected
    write_experiment(parse_experiment(None, recipe, []), tmp_path / "experiment.yaml")
    assert read_experiment(tmp_path, options).env_options == expected
    assert env_options == {"size": 5, "camera": {"width": 8, "height": 8}}


def test_environments_are_listed_with_weights_and_options(tmp_path):
    entries = [{"name": "A", "weight": 2, "options": {"size": 3}}, {"name": "B"}, "C"]
    expected = (WeightedEnvironment("A", 2.0, {"size": 3}), WeightedEnvironment("B"), WeightedEnvironment("C"))
    by_recipe = parse_experiment(None, {"agent": {"name": "impala"}, "env": entries, "actors": 7}, [])
    text = "[{name: A, weight: 2, options: {size: 3}}, {name: B}, C]"
    by_option = parse_experiment("impala", {}, ["--env", text, "--actors", "7"])
    assert by_recipe == by_option and by_recipe.env == expected
    write_experiment(by_recipe, tmp_path / "experiment.yaml")
    assert read_experiment(tmp_path).env == expected
    assert parse_experiment("impala", {}, ["--env", "7"]).env == "7"


@pytest.mark.parametrize(
    "env, message",
    [
        ([{"name": "A", "wait": 2}], "unknown key 'env.wait'; did you mean 'env.weight'?"),
        ([{"name": "A", "weight": -2}], "env.weight must be a number above 0, not -2"),
        ([{"weight": 2}], "env.name is missing from {'weight': 2}"),
        ([[]], "env must be text or a list, not [[]]"),
        (5, "env must be text or a list, not 5"),
    ],
)
def test_wrong_lists_of_environments_are_refused_in_one_line(env, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        parse_experiment(None, {"agent": {"name": "impala"}, "env": env}, [])


def test_impalas_recipe_for_atari_has_the_papers_optimizer():
    """Table G.1; that a step is then as large as the paper's stands in `tests/agents/test_impala.py`."""
    optimizer = {
        "optimizer.name": "rmsprop",
        "optimizer.learning_rate": 6e-4,
        "optimizer.rmsprop_decay": 0.99,
        "optimizer.epsilon": 0.01,
    }
    paper = {
        "unroll_length": 20,
        "batch_size": 32,
        "optimizer.max_gradient_norm": 40.0,
        "baseline_cost": 0.5,
        "entropy_cost": 0.01,
    }
    agent = parse_experiment(None, read_recipe("impala-atari"), []).agent
    found = {name: field.default for name, field in declared_fields(agent).items()}
    assert {**found, **optimizer, **paper} == found


def test_what_is_written_is_read_again(tmp_path):
    experiment = Experiment(
        agent=from_values(Impala, {"network.hidden_sizes": (8,), "reward_scale": 0.5}),
        env="CartPole-v1",
        seed=9,
        run_dir=tmp_path,
        stop_return=3.0,
    )
    write_experiment(experiment, tmp_path / "experiment.yaml")
    assert read_experiment(tmp_path) == experiment
    assert yaml.safe_load((tmp_path / "experiment.yaml").read_text())["agent"]["name"] == "impala"


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", recipe_names())
def test_the_recipes_that_ship_are_right(name):
    experiment = parse_experiment(None, read_recipe(name), [])
    try:
        check_experiment(experiment)
    except CallboardError as error:
        if "needs the package" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "agent, recipe, options, owners",
    [
        ("td3", {}, ["--agent.crossq"], "cql, drq, sac"),
        ("ppo", {}, ["--agent.replay.min-size", "5"], "apex, awr, bc, "),
        ("impala", {}, ["--agent.clip", "0.2"], "appo, ppo"),
        ("sac", {"agent": {"bonus": {"name": "rnd"}}}, [], "a2c, apex, appo, impala, ppo, r2d2"),
        ("ppo", {}, ["--crossq"], "cql, drq, sac"),
        ("ppo", {}, ["--policies.x.crossq", "true"], "cql, drq, sac"),
        ("ppo", {"policies": {"x": {"replay": {"min_size": 5}}}}, [], "apex, awr, bc, "),
    ],
)
def test_a_setting_of_other_agents_is_said_to_be_theirs(agent, recipe, options, owners):
    with pytest.raises(CallboardError, match=f"; it is a setting of {owners}.*, not of {agent}$"):
        parse_experiment(agent, recipe, ["--env", "CartPole-v1", *options])


def test_a_setting_of_another_agent_is_named_as_it_is_called_here():
    hint = "did you mean '--agent.actor-optimizer.learning-rate' or '--agent.critic-optimizer.learning-rate'"
    with pytest.raises(CallboardError, match=hint):
        parse_experiment("td3", {}, ["--env", "Pendulum-v1", "--agent.optimizer.learning-rate", "1e-3"])


@pytest.mark.parametrize(
    "recipe, options, message",
    [
        (
            {},
            ["--agent.learnin-rate", "1"],
            "unknown option '--agent.learnin-rate'; did you mean '--agent.optimizer.learning-rate'?",
        ),
        (
            {"agent": {"entropy_cost": {"name": 1}}},
            [],
            "unknown key 'agent.entropy_cost.name'; did you mean 'agent.entropy_cost.end'?",
        ),
        ({"max_stps": 5}, [], "unknown key 'max_stps'; did you mean 'max_steps'?"),
        ({"agent": {"batchsize": 5}}, [], "unknown key 'agent.batchsize'; did you mean 'agent.batch_size'?"),
        (
            {},
            ["--agent.optimizer.learning-rate", "fast"],
            "must be a number above 0 or a schedule such as {schedule: linear, start: 1e-3}, not 'fast'",
        ),
        (
            {},
            ["--agent.optimizer.learning-rate", "-1"],
            "must be a number above 0 or a schedule such as {schedule: linear, start: 1e-3}, not -1",
        ),
        ({}, ["--agent.discount", "1.5"], "agent.discount must be a number from 0 to 1, not 1.5"),
        (
            {},
            ["--agent.optimizer=3"],
            "agent.optimizer is a group of settings, not 3; set one of them by its name",
        ),
        ({"agent": {"optimizer": 3}}, [], "set one of them by its name, such as agent.optimizer.name"),
        (
            {},
            ["--agent", "ppo"],
            "agent is a group of settings, not 'ppo'; set one of them by its name, such as agent.",
        ),
        ({"agent": {"optimizer": None}}, [], "agent.optimizer is a group of settings, not None"),
        ({}, ["--agent.learning-rate", "1"], "did you mean '--agent.optimizer.learning-rate'?"),
        ({"agent": {"torso": "mlp"}}, [], "unknown key 'agent.torso'; did you mean 'agent.network.torso'?"),
        ({}, ["--agent.optimizer.name", "sdg"], "agent.optimizer: unknown optimizer 'sdg'; did you mean 'sgd'?"),
        (
            {},
            ["--agent.network.hidden-sizes", "[a]"],
            "agent.network.hidden_sizes must be a list of whole numbers from 1 to 65,536, such as [64, 64], not ['a']",
        ),
        ({"checkpoint_every": "٣"}, [], "checkpoint_every must be a number above 0 and at most 100,000,000, not '٣'"),
        ({"actors": "many"}, [], "actors must be a whole number from 0 to 10,000 or a range such as 2..20, not 'many'"),
        ({"max_steps": None}, [], "max_steps must be a whole number from 1 to 4,611,686,018,427,387,904, not None"),
        ({"stop_return": float("nan")}, [], "stop_return must be a number that is finite or null, not nan"),
        ({"evaluator": 1}, [], "evaluator must be true or false, not 1"),
        ({"env_options": [1]}, [], "env_options must be settings by name, such as {size: 5}, not [1]"),
        ({"agent": {"name": 5}}, [], "agent.name must be the name of an agent, such as ppo, not 5"),
        (
            {"agent": ["impala"]},
            [],
            "agent must be a name, or hold settings such as `{name: ppo}`, not ['impala']",
        ),
        ({5: 5}, [], "unknown key '5'"),
        ({}, ["--env"], "--env needs a value: text"),
        ({}, ["--seed", "--env", "A"], "--seed needs a value: a whole number"),
        ({}, ["stray", "--env", "A"], "'stray' is no option"),
        ({}, ["--no-seed"], "--no-seed is no flag: --seed is a whole number"),
        ({"env_options": {"size": 5}}, ["--no-env-options.sise"], "entry that is not set: there are size"),
        ({}, ["--env-options..x", "1"], "names no entry of --env-options; write --env-options.NAME VALUE"),
    ],
)
def test_mistakes_are_one_line(recipe, options, message):
    with pytest.raises(CallboardError) as caught:
        parse_experiment("impala", {"env": "CartPole-v1", **recipe}, options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_are_converted_as_they_are_meant():
    options = ["--env", "A", "--max-steps", "1e6", "--stop-return", "5", "--learner-devices", "CPU:0,CPU:1"]
    experiment = parse_experiment("impala", {"run_dir": "x"}, [*options, "--no-evaluator", "--run-dir", "2024"])
    assert (experiment.max_steps, experiment.stop_return, experiment.evaluator) == (1_000_000, 5.0, False)
    assert (experiment.learner_devices, experiment.run_dir) == ("CPU:0,CPU:1", pathlib.Path("2024"))
    assert parse_experiment("impala", {"env": "A"}, ["--learner-devices", "2"]).learner_devices == 2


@dataclasses.dataclass(frozen=True)
class Momentum:
    decay: float = 0.9
    nesterov: bool = False


@dataclasses.dataclass(frozen=True)
class Solver:
    name: str = "adam"
    momentum: Momentum = Momentum(decay=0.99)


@dataclasses.dataclass(frozen=True)
class Nested(Impala):
    solver: Solver = Solver(name="sgd")


def test_options_are_merged_into_nested_dataclasses(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nested_agents", types.SimpleNamespace(Nested=Nested))
    recipe = {"agent": {"name": "nested_agents:Nested", "solver": {"momentum": {"decay": 0.5}}}, "env": "A"}

    def solver(*options):
        return parse_experiment(None, recipe, options).agent.solver

    assert solver() == Solver("sgd", Momentum(0.5))
    assert solver("--agent.solver.momentum.nesterov") == Solver("sgd", Momentum(0.5, nesterov=True))
    assert solver("--agent.solver", "{name: adam, momentum: {nesterov: true}}") == Solver("adam", Momentum(0.5, True))
    with pytest.raises(CallboardError, match="'--agent.solver.nane'; did you mean '--agent.solver.name'?"):
        solver("--agent.solver.nane", "adam")
    write_experiment(parse_experiment(None, recipe, []), tmp_path / "experiment.yaml")
    resumed = read_experiment(tmp_path, ["--agent.solver.name", "adam", "--agent.optimizer.learning-rate", "0.5"])
    assert resumed.agent.solver == Solver("adam", Momentum(0.5))
    assert resumed.agent.optimizer == dataclasses.replace(Impala().optimizer, learning_rate=0.5)


def test_an_environment_must_be_named():
    with pytest.raises(CallboardError, match="name an environment: --env CartPole-v1"):
        parse_experiment("impala", {}, [])


def test_an_unknown_recipe_is_refused_with_the_nearest():
    with pytest.raises(CallboardError, match="did you mean 'impala-cartpole'"):
        read_recipe("impala-cartpol")


@pytest.mark.slow("daily")
def test_a_mistake_is_found_without_tensorflow(tmp_path):
    """Settings, environment and launcher are looked at before TensorFlow is imported."""
    refused = [
        ["train", "impala", "--env", "CartPole-v1", "--max-stps", "5"],
        ["train", "impala", "--env", "CartPole-v1", "--agent.network.core", "lstn"],
        ["train", "impala", "--env", "CartPole-v1", "--actors", "0"],
        ["train", "impala", "--env", "CartPol-v1", "--launcher", "inline"],
        ["train", "impala", "--env", "CartPole-v1", "--launcher", "inline", "--env-options.gravity", "3"],
        ["train", "impala", "--env", "CartPole-v1", "--launcher", "ray", "--ray-wait", "-1"],
        ["train", "impala", "--env", "CartPole-v1", "--launcher", "hosts", "--cluster", "no.yaml", "--host", "a"],
        ["train", "--resume", "--run-dir", "nowhere"],
        ["graph", "impala", "--env", "CartPole-v1", "--actors", "1000000"],
        ["tune", "impala", "--env", "CartPole-v1", "--sampels", "3"],
        ["evaluate", "nowhere"],
        ["evaluate", "nowhere", "--episodes", "many"],
        ["cluster", "check", "no.yaml", "--host", "a"],
        ["lst"],
    ]
    code = (
        "import sys, json\n"
        "from callboard.cli.command import main\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    assert main(arguments) == 2, arguments\n"
        "assert main(['train', 'impala', '--help']) == main(['--help']) == main(['list', 'recipes']) == 0\n"
        "assert not {'tensorflow', 'reverb', 'launchpad', 'ray', 'scipy'} & set(sys.modules)\n"
    )
    arguments = [sys.executable, "-c", code, json.dumps(refused)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("callboard: ") == done.stderr.count("\n") == len(refused), done.stderr
    assert not list(tmp_path.iterdir())


def test_a_recipe_may_give_the_agent_s_name_alone(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text("agent: ppo\nenv: CartPole-v1\n")
    short = parse_experiment(None, read_recipe(str(path)), ["--agent.epochs", "3"])
    assert short == parse_experiment("ppo", {"env": "CartPole-v1", "agent": {"epochs": 3}}, [])


def _write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_a_recipe_overrides_the_one_that_it_is_based_on(tmp_path):
    (tmp_path / "below").mkdir()
    _write(tmp_path, first="base: ppo-cartpole\nmax_steps: 5000\nagent: {discount: 0.9, optimizer: {epsilon: 1.0e-6}}")
    _write(tmp_path / "below", second="base: ../first.yaml\nagent: {epochs: 2, optimizer: {learning_rate: 0.1}}")
    experiment = parse_experiment(None, read_recipe(str(tmp_path / "below" / "second.yaml")), [])
    agent = {"discount": 0.9, "epochs": 2, "optimizer": {"learning_rate": 0.1, "epsilon": 1e-6}}
    options = ["--max-steps=5000", *(f"--agent.{name}={json.dumps(value)}" for name, value in agent.items())]
    assert experiment == parse_experiment(None, read_recipe("ppo-cartpole"), options)
    assert "base" not in read_recipe(str(tmp_path / "below" / "second.yaml"))


def test_a_base_for_another_agent_leaves_the_run(tmp_path):
    _write(tmp_path, other="base: ppo-cartpole\nagent: {name: impala, discount: 0.5}")
    recipe = read_recipe(str(tmp_path / "other.yaml"))
    assert recipe["agent"] == {"name": "impala", "discount": 0.5} and recipe["max_steps"] == 100_000


def test_later_recipes_override_earlier_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write(tmp_path, a="agent: ppo\nenv: CartPole-v1\nenv_options: {x: 1, y: 2}", b="env_options: {y: 3}\nseed: 4")
    expected = {"agent": {"name": "ppo"}, "env": "CartPole-v1", "env_options": {"x": 1, "y": 3}, "seed": 4}
    assert read_recipes(["a.yaml", "b.yaml"]) == expected
    _write(tmp_path, both="base: [a.yaml, b.yaml]")
    assert read_recipe("both.yaml") == expected


@pytest.mark.parametrize(
    "files, message",
    [
        ({"a": "base: a.yaml"}, "a.yaml is based on itself; leave base out"),
        ({"a": "base: b.yaml", "b": "base: [ppo-cartpole, a.yaml]"}, "a.yaml is based on itself"),
        ({"a": "base: 3"}, "a.yaml: base must be the name of a recipe, or the path of a YAML file, not 3"),
        ({"a": "base: none.yaml"}, "a.yaml: base: unknown recipe '.*none.yaml'"),
        ({"a": "base: ''"}, "a.yaml: base: unknown recipe"),
        ({"a": "base: b.yaml", "b": "[]"}, "b.yaml must hold settings"),
    ],
)
def test_bases_that_cannot_be_are_refused_in_one_line(files, message, tmp_path):
    _write(tmp_path, **files)
    with pytest.raises(CallboardError, match=message) as refused:
        read_recipe(str(tmp_path / "a.yaml"))
    assert "\n" not in str(refused.value)


def test_an_unknown_key_is_named_before_the_missing_agent():
    with pytest.raises(CallboardError, match="unknown key 'max_step'; did you mean 'max_steps'"):
        parse_experiment(None, {"max_step": 5}, [])


def test_an_unknown_recipe_names_the_closest_ones_and_the_study_of_that_name():
    with pytest.raises(CallboardError) as refused:
        read_recipe("ppo-pong")
    assert "there is a study of that name: callboard study ppo-pong; the closest are ppo-" in str(refused.value)
    assert len(str(refused.value)) < 250


def test_printed_settings_are_a_recipe_of_the_same_run(tmp_path, capsys):
    command = ["train", "--recipe", "ppo-cartpole", "--seed", "7", "--agent.discount", "0.5"]
    assert main([*command, "--print-settings"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    printed = parse_experiment(None, read_recipe(str(tmp_path / "printed.yaml")), [])
    assert printed == parse_experiment(None, read_recipe("ppo-cartpole"), command[3:])
    assert [path.name for path in tmp_path.iterdir()] == ["printed.yaml"]
    assert main(["train", "--recipe", "ppo-cartpole", "--actors", "0", "--print-settings"]) == 2
