"""Files of others: functions that they name are not executed unless they are meant to be."""

import functools
import logging
import os
import pathlib
import subprocess
import sys

import numpy
import pytest
from slow_cases import slow_but

import callboard
from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.runtime.interpreter import python_command
from callboard.settings import own_modules
from callboard.settings.named_objects import check_options, check_usable, import_object, nameable


@pytest.fixture(autouse=True)
def same_logging(monkeypatch):
    # numpy.distutils replaces the class of the root logger, by one that takes no `exc_info`.
    monkeypatch.setattr(logging.root, "__class__", type(logging.root))


RUN = "agent: {name: impala}\nenv: 'subprocess:getoutput'\nenv_options: {cmd: 'touch executed'}\n"


@pytest.mark.parametrize(
    "recipe",
    [
        RUN,
        "agent: {name: impala}\nenv: 'os:system'\nenv_options: {command: 'touch executed'}\n",
        "agent: {name: 'os:system'}\nenv: CartPole-v1\n",
        "agent: {name: impala, network: {torso: 'os:abort'}}\nenv: CartPole-v1\n",
        "agent: {name: impala}\nenv: 'holds_system:run'\nenv_options: {cmd: 'touch executed'}\n",
        "agent: {name: impala}\nenv: !!python/object/apply:os.system ['touch executed']\n",
    ],
)
def test_functions_of_the_standard_library_are_not_called(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "holds_system.py").write_text("from subprocess import getoutput as run\n")
    (tmp_path / "recipe.yaml").write_text(recipe)
    (tmp_path / "experiment.yaml").write_text(recipe)
    for arguments in (["graph", "--recipe", "recipe.yaml"], ["evaluate", "."], ["export", ".", "policy"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "executed").exists()


FUNCTIONS = (
    "numpy.distutils.exec_command:exec_command",
    "numpy:load",
    "setuptools._distutils.spawn:spawn",
    "os:system",
    "callboard.files.atomic_files:remove_directory",
    "ray:init",
    "pip.__main__:main",
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_installed_packages_are_refused(name):
    with pytest.raises(CallboardError, match=f"^environment '{name}' is refused: "):
        import_object("environment", name)


@pytest.mark.parametrize("name", slow_but(FUNCTIONS, "numpy:load"))
def test_functions_of_installed_packages_are_not_called(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(f"agent: {{name: impala}}\nenv: '{name}'\n")
    assert main(["graph", "--recipe", "recipe.yaml"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"callboard: environment {name!r} is refused: ") and error.count("\n") == 1


@pytest.mark.slow("daily")
def test_nothing_that_the_libraries_define_is_usable_but_by_its_kind():
    """Every public function and class of the modules that are loaded now."""
    import setuptools  # noqa: F401
    import tensorflow  # noqa: F401

    packages = {"numpy", "setuptools", "tensorflow", "reverb", "launchpad", "scipy", "yaml", "rich", "os", "subprocess"}
    accepted, refused = set(), 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in packages:
            continue
        for found in list(vars(module).values()):
            owner = getattr(found, "__module__", None)
            if not callable(found) or not isinstance(owner, str) or owner.partition(".")[0] not in packages:
                continue
            try:
                check_usable("environment", name, found)
            except CallboardError:
                refused += 1
            else:
                accepted.add(found)
    assert refused > 1000
    kinds = {"Layer", "Module", "Optimizer"}
    wrong = [one for one in accepted if kinds.isdisjoint(base.__name__ for base in one.__mro__)]
    assert not wrong


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(
            "agent: {name: impala}\nenv: 'keras.export.export_lib:ReloadedLayer'\nenv_options: {filepath: graph}\n",
            marks=pytest.mark.slow,
        ),
        "agent: {name: impala, network: {core: 'keras.export.export_lib:ReloadedLayer', "
        "core_options: {filepath: graph}}}\nenv: CartPole-v1\n",
    ],
)
def test_a_graph_in_a_file_is_not_loaded_by_a_layer_in_the_wrong_place(recipe, tmp_path, monkeypatch, capsys):
    import tensorflow as tf

    class WritesWhenLoaded(tf.saved_model.experimental.TrackableResource):
        def _create_resource(self):
            return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])

        def _initialize(self):
            tf.io.write_file(str(tmp_path / "executed"), "")

    class Graph(tf.Module):
        def __init__(self):
            super().__init__()
            self.resource = WritesWhenLoaded()

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
        def serve(self, inputs):
            self.resource.resource_handle  # noqa: B018
            return inputs

    monkeypatch.chdir(tmp_path)
    tf.saved_model.save(Graph(), "graph")
    (tmp_path / "executed").unlink(missing_ok=True)
    (tmp_path / "recipe.yaml").write_text(recipe)
    assert main(["graph", "--recipe", "recipe.yaml"]) == 2
    error = capsys.readouterr().err
    assert " 'keras.export.export_lib:ReloadedLayer' is refused: it belongs to the package keras" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "executed").exists()
    tf.saved_model.load("graph")
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("kind", ["environment", "wrapper", "agent", "callbacks", "launcher", "logger", "core"])
def test_a_layer_is_no_other_part_of_a_run(kind):
    with pytest.raises(CallboardError, match="is refused: it belongs to the package keras"):
        import_object(kind, "tensorflow.keras.layers:Flatten")


def test_a_function_of_a_library_is_refused_under_another_name_too():
    with pytest.raises(CallboardError, match="is refused: it belongs to Python's standard library"):
        check_usable("environment", "mine:own", functools.partial(os.path.join, "a"))
    with pytest.raises(CallboardError, match="is refused: it belongs to Python's standard library"):
        check_usable("environment", "mine:own", subprocess.Popen(["true"]).wait)
    with pytest.raises(CallboardError, match="is refused: it belongs to the package numpy"):
        check_usable("environment", "numpy:bound", functools.partial(numpy.load))
    check_usable("environment", f"{__name__}:own", functools.partial(numpy.load, "own.npy"))
    check_usable("environment", "mine:own", functools.partial(RunsNothing, size=1))
    check_usable("environment", "mine:own", RunsNothing().method)


def test_a_package_may_mark_a_function():
    function = lambda: None  # noqa: E731
    function.__module__ = "numpy"
    with pytest.raises(CallboardError):
        check_usable("environment", "numpy:function", function)
    check_usable("environment", "numpy:function", nameable(function))


def test_environments_and_wrappers_of_packages_are_usable():
    assert import_object("environment", "gymnasium.envs.classic_control:CartPoleEnv")
    assert import_object("wrapper", "gymnasium.wrappers:TimeLimit")
    assert import_object("torso", "tensorflow.keras.layers:Flatten")
    assert import_object("environment", "callboard.environments.masked_observations:masked")


class RunsNothing:
    def method(self):
        pass


@pytest.mark.parametrize("option", [[], ["--private-network"]])
def test_files_in_the_working_directory_do_not_take_the_place_of_libraries(option, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "callboard").write_text("from callboard.cli.command import run_command\nrun_command()\n")
    here = tmp_path / "downloaded"
    here.mkdir()
    for name in ("yaml", "json", "numpy", "rich", "gymnasium", "tensorflow", "callboard", "multiprocessing", "runpy"):
        (here / f"{name}.py").write_text("open('executed', 'w')\n")
    command = [sys.executable, tmp_path / "bin" / "callboard", "train", "--recipe", "impala-cartpole"]
    done = subprocess.run([*command, *option, "--agent.network.core", "lstn"], cwd=here, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("callboard: ") and done.stderr.count("\n") == 1, done.stderr
    assert not (here / "executed").exists()


OPTIONAL = (
    "pickle5",
    "org",
    "backports_abc",
    "msvcrt",
    "dill",
    "lz4",
    "simplejson",
    "tensorflow_io",
    "wandb",
    "minatar",
)
"""Modules that libraries, or this one, try to import and that need not be installed."""
COMMANDS = (
    "list agents",
    "compare .",
    "top . --once",
    "graph impala --env CartPole-v1",
    "study --list",
    "evaluate . --help",
    "train impala --help",
)


@pytest.mark.parametrize("arguments", slow_but(COMMANDS, "compare .", "top . --once"))
def test_looking_at_a_directory_imports_nothing_from_it(arguments, tmp_path):
    for name in OPTIONAL:
        (tmp_path / f"{name}.py").write_text("open('executed', 'a').write(__name__)\n")
    (tmp_path / "experiment.yaml").write_text("agent: {name: 'pickle5:Agent'}\nenv: CartPole-v1\n")
    (tmp_path / "metrics.jsonl").write_text('{"environment_steps": 1, "evaluator/return": 1.0}\n')
    command = os.path.join(os.path.dirname(sys.executable), "callboard")
    subprocess.run([command, *arguments.split()], cwd=tmp_path, capture_output=True, timeout=120)
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


OURS = (
    "callboard.tests.launch.tunes_trials:run",
    "callboard.examples.serve_policy:main",
    "callboard.files.atomic_files:remove_directory",
    "callboard.__main__:main",
    "tests.ended:main",
    "examples.serve_policy:main",
    "files.atomic_files:remove_directory",
    "settings.own_modules:is_own",
    "messages.install_commands:install_command",
)
USES_OURS = f"""
from callboard.errors import CallboardError
from callboard.settings.named_objects import check_usable, import_module
from callboard.settings.own_modules import search_working_directory
search_working_directory()
for name in {OURS!r}:
    module_name, _, function = name.partition(":")
    try:
        module = import_module("environment", name, module_name)
        check_usable("environment", name, getattr(module, function, module.__spec__.loader.exec_module))
    except CallboardError as error:
        print(error)
    else:
        print(name, "is usable")
"""


@pytest.mark.slow("daily")
def test_files_of_this_repository_are_no_users_modules():
    """In the clone itself, under any name."""
    root = pathlib.Path(callboard.__file__).resolve().parent
    for name in OURS:
        file = root / name.partition(":")[0].removeprefix("callboard.").replace(".", "/")
        assert file.with_suffix(".py").exists()
    done = subprocess.run(python_command(USES_OURS), cwd=root, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(OURS), done.stderr
    for name, line in zip(OURS, lines, strict=True):
        assert f"'{name}' is refused: " in line


def test_a_project_beside_the_library_is_the_users(tmp_path, monkeypatch):
    """A clone is also where people write their own environment."""
    monkeypatch.setattr(own_modules, "_REPOSITORY", str(tmp_path))
    (tmp_path / "tests").mkdir()
    for name in ("my_environment.py", "data.py", "tests/my_test.py"):
        (tmp_path / name).write_text("")
    assert not own_modules._is_of_repository(str(tmp_path / "my_environment.py"))
    assert own_modules._is_of_repository(str(tmp_path / "data.py"))
    assert own_modules._is_of_repository(str(tmp_path / "tests" / "my_test.py"))


def test_the_names_of_the_librarys_modules_are_complete():
    root = pathlib.Path(callboard.__file__).resolve().parent
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True).stdout.split()
    if not tracked:
        pytest.skip("this is no clone")
    assert {name[:-3] for name in tracked if "/" not in name} == set(own_modules._MODULES)
    assert {name.partition("/")[0] for name in tracked if "/" in name} == set(own_modules._FOLDERS)


@pytest.mark.parametrize("key", ["class_name", "registered_name", "function_type"])
def test_options_of_installed_classes_name_no_class(key):
    layer = import_object("torso", "tensorflow.keras.layers:GaussianNoise")
    regularizer = {"module": "keras.layers", key: "Lambda", "config": {"function": ["4wEAAAA="]}}
    for options in ({"stddev": 1.0, "activity_regularizer": regularizer}, {"layers": [1, {"a": regularizer}]}):
        with pytest.raises(CallboardError, match=f"is refused: '{key}' in its options names a class or function"):
            check_options("torso", "keras.layers:GaussianNoise", layer, options)
        check_options("torso", "mine:layer", RunsNothing, options)
    check_options("torso", "keras.layers:GaussianNoise", layer, {"stddev": 1.0, "name": "class_name"})


@pytest.mark.parametrize("part", ["torso", "head", "optimizer"])
def test_a_dictionary_that_names_a_class_is_refused_for_every_part(part, tmp_path, capsys):
    """By Callboard, whatever the installed Keras does with such a dictionary."""
    options = "{activity_regularizer: {class_name: Lambda, module: keras.layers, config: {function: x}}}"
    network = {
        "torso": f"network: {{torso: 'tensorflow.keras.layers:Dense', torso_options: {options}}}",
        "head": f"network: {{head: 'tensorflow.keras.layers:Dense', head_options: {options}}}",
        "optimizer": f"optimizer: {{name: 'tensorflow.keras.optimizers:Adam', options: {options}}}",
    }[part]
    (tmp_path / "recipe.yaml").write_text(f"agent: {{name: ppo, {network}}}\nenv: CartPole-v1\n")
    assert main(["graph", "--recipe", str(tmp_path / "recipe.yaml")]) == 2
    error = capsys.readouterr().err
    assert "'class_name' in its options names a class or function" in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["ReloadedLayer", "TFSMLayer", "KerasLayer"])
def test_layers_that_load_a_graph_are_no_part_of_a_network(name):
    import tensorflow as tf

    loading = type(name, (tf.keras.layers.Layer,), {"__module__": "keras.somewhere"})
    with pytest.raises(CallboardError, match="is refused: it belongs to the package keras"):
        check_usable("torso", f"keras.somewhere:{name}", loading)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [["--launcher", "launchpad", "--launch-type", "local_mp"], ["--launcher", "ray", "--ray-address", "local"]],
    ids=["launchpad", "ray"],
)
def test_nodes_take_no_library_from_the_working_directory(options, tmp_path):
    """Modules of all names of the standard library lie there, and an environment of the user's own, which is found."""
    here = tmp_path / "here"
    here.mkdir()
    for name in {*sys.stdlib_module_names, *OPTIONAL, "colorama", "zstandard"} - {"__main__", "__future__"}:
        (here / f"{name}.py").write_text(f"open('executed', 'a').write('{name} ')\n")
    (here / "own_environment.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    command = [os.path.join(os.path.dirname(sys.executable), "callboard"), "train", "impala", *options]
    command += ["--env", "own_environment:make", "--max-steps", "500", "--evaluator", "false", "--actors", "1"]
    done = subprocess.run([*command, "--run-dir", tmp_path / "run"], cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (here / "executed").exists(), (here / "executed").read_text()
