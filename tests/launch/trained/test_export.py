"""Exported policies act as in an evaluation, in a process that cannot import Callboard."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from other_interpreters import interpreters

from callboard import load_policy
from callboard.agents.policies.acting import evaluate
from callboard.cli.command import main
from callboard.environments import BatchedEnvironment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_experiment, write_experiment
from callboard.launch.nodes.acting.acting_environments import make_environments
from callboard.launch.nodes.acting.compiled_policies import compile_policy
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import load_weights, save_policy
from callboard.launch.saved.saved_policies import policy_file
from callboard.launch.trained.export import save_policy_as_model
from callboard.launch.trained.traced_policy import leaf_names
from callboard.specs import EnvironmentSpec

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
MASKED = "callboard.environments.masked_observations:masked"
CASES = {
    "impala": ("impala", "--env=CartPole-v1"),
    "impala-lstm": ("impala", f"--env={MASKED}", "--agent.network.core=lstm", "--agent.network.lstm-size=16"),
    "apex": ("apex", "--env=MinAtar/Asterix-v1", "--agent.frame-stack=3", "--agent.network.torso=mlp"),
    "r2d2": ("r2d2", f"--env={MASKED}", "--agent.network.lstm-size=16"),
    "sac": ("sac", "--env=Pendulum-v1"),
    "ppo": ("ppo", "--env=CartPole-v1"),
    "ppo-lstm": (
        "ppo",
        f"--env={MASKED}",
        "--agent.network.core=lstm",
        "--agent.network.lstm-size=16",
        "--agent.network.head-sizes=[]",
    ),
    "ppo-gaussian": ("ppo", "--env=Pendulum-v1"),
}
TRAINING = {
    "apex": ("--agent.replay.min-size=500", "--agent.replay.size=10000", "--agent.batch-size=32"),
    "sac": ("--agent.replay.min-size=500", "--agent.replay.size=10000", "--agent.batch-size=32"),
}
RECURRENT = ("impala-lstm", "apex", "r2d2", "ppo-lstm")
ENVS = 3
TIMESTEPS = 100
"""At most: more than an episode of most of these policies, and half of one of Pendulum's."""


class Recorded(BatchedEnvironment):
    """Another environment, and all its timesteps and the actions that followed."""

    def __init__(self, environment):
        self._environment = environment
        self.timesteps, self.actions = [], []

    @property
    def spec(self):
        return self._environment.spec

    @property
    def batch_size(self):
        return self._environment.batch_size

    def reset(self):
        self._timestep = self._environment.reset()
        return self._timestep

    def step(self, actions):
        self.timesteps.append(self._timestep)
        self.actions.append(actions)
        self._timestep = self._environment.step(actions)
        return self._timestep

    def render(self):
        return self._environment.render()

    def close(self):
        self._environment.close()


def write_run(case, run_dir):
    """A run as if it had been trained, with weights large enough for actions of every kind."""
    agent, *options = CASES[case]
    experiment = parse_experiment(agent, {}, [*options, f"--run-dir={run_dir}"])
    run = RunDirectory(run_dir)
    run.create()
    write_experiment(experiment, run.experiment)
    rng = np.random.default_rng(3)
    policy = experiment.agent.make_policy(
        experiment.agent.make_networks(check_experiment(experiment).whole), "evaluate"
    )
    for variable in policy.variables:
        if variable.shape.rank > 1:
            variable.assign(rng.normal(size=variable.shape))
    save_policy(run.best_policy, policy, mean_return=0.0, learner_step=0)


def record(run_dir, checkpoint):
    """Whole episodes as `evaluate` plays them: fields of the timesteps `[T, B, ...]` by name, and actions."""
    experiment, run = read_experiment(run_dir), RunDirectory(run_dir)
    layout = check_experiment(experiment).whole
    networks = experiment.agent.make_networks(layout)
    policy = compile_policy(experiment, layout, networks, "evaluate", 0, ENVS)
    load_weights(policy_file(run, checkpoint), policy.policy.variables)
    environment = Recorded(make_environments(experiment, "evaluator", 0, ENVS))
    evaluate(environment, policy, episodes=ENVS, stopped=lambda: len(environment.timesteps) == TIMESTEPS)
    fields = {
        name: [getattr(timestep, name) for timestep in environment.timesteps]
        for name in ("observation", "first", "reward")
    }
    return {name: np.stack(columns) for name, columns in fields.items()}, np.stack(environment.actions)


def play(run_dir, directory, checkpoint):
    """Plays an evaluation, and writes its timesteps beside the exported model; gives the actions."""
    timesteps, actions = record(run_dir, checkpoint)
    model = tf.saved_model.load(str(directory / "model"))
    _, inputs = model.signatures["serving_default"].structured_input_signature
    np.savez(directory / "timesteps.npz", **{name: column for name, column in timesteps.items() if name in inputs})
    return actions


def play_without_callboard(directories):
    # Without `site` there are no editable installations, of which Callboard is one.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    program = pathlib.Path(__file__).with_name("play_exported.py")
    command = [sys.executable, "-S", str(program), *map(str, directories)]
    done = subprocess.run(command, cwd=directories[0], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def play_with_onnxruntime(python, directories, path=None):
    program = pathlib.Path(__file__).with_name("play_onnx.py")
    environment = {**os.environ, "PYTHONPATH": path} if path else None
    command = [python, *(["-S"] if path else []), str(program), *map(str, directories)]
    done = subprocess.run(command, cwd=directories[0], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_same_actions(directory, expected):
    played = np.load(directory / "actions.npz")
    assert played["batch"].dtype == expected.dtype
    for found, wanted in ((played["batch"], expected), (played["alone"], expected[:, :1])):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, wanted)
    return played


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Gives the directory with the model of a case, exported the first time that it is requested."""
    made = {}

    def of_case(case):
        if case not in made:
            made[case] = tmp_path_factory.mktemp(case)
            write_run(case, made[case] / "run")
            assert main(["export", str(made[case] / "run"), str(made[case] / "model"), "--checkpoint", "best"]) == 0
        return made[case]

    return of_case


@pytest.fixture(scope="module")
def onnx_exports(exports):
    """Gives the directories of cases, with ONNX models and timesteps beside the SavedModels, and the actions."""
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    expected = {case: play(exports(case) / "run", exports(case), "best") for case in CASES}
    for case in CASES:
        command = ["export", str(exports(case) / "run"), str(exports(case) / "onnx"), "--format", "onnx"]
        assert main(command) == 0
    return {case: exports(case) for case in CASES}, expected


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.slow
def test_without_callboard_it_acts_as_in_an_evaluation(exports):
    expected = {case: play(exports(case) / "run", exports(case), "best") for case in CASES}
    play_without_callboard([exports(case) for case in CASES])
    for case, actions in expected.items():
        played = assert_same_actions(exports(case), actions)
        # Otherwise much less would do.
        assert len(actions) > 5 and len(np.unique(actions)) > 1, case
        assert (case in RECURRENT) == bool((played["forgetful"] != played["batch"]).any()), case


def assert_onnx_models_act(onnx_exports):
    directories, expected = onnx_exports
    for case, actions in expected.items():
        played = assert_same_actions(directories[case], actions)
        assert (case in RECURRENT) == bool((played["forgetful"] != played["batch"]).any()), case


@pytest.mark.slow
def test_onnx_models_act_without_tensorflow(onnx_exports):
    play_with_onnxruntime(sys.executable, list(onnx_exports[0].values()), sysconfig.get_path("purelib"))
    assert_onnx_models_act(onnx_exports)


@pytest.mark.slow
def test_onnx_models_act_in_another_python(onnx_exports, tmp_path):
    others = {version: python for version, python in interpreters().items() if version > 10}
    if not others:
        pytest.skip("there is no newer Python here")
    subprocess.run([others[max(others)], "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "numpy", "onnxruntime"]
    if subprocess.run(install, timeout=300).returncode:
        pytest.skip("onnxruntime cannot be installed here")
    play_with_onnxruntime(str(python), list(onnx_exports[0].values()))
    assert_onnx_models_act(onnx_exports)


@pytest.mark.slow
def test_onnx_models_act_in_javascript(onnx_exports, tmp_path):
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no node here")
    shutil.copy(EXAMPLES / "onnx" / "act.mjs", tmp_path)
    install = [npm, "install", "--no-audit", "--no-fund", "onnxruntime-web@1.30.0"]
    if subprocess.run(install, cwd=tmp_path, timeout=400).returncode:
        pytest.skip("onnxruntime-web cannot be installed here")
    directories, expected = onnx_exports
    for case in ("ppo", "ppo-lstm", "r2d2", "sac"):
        timesteps = dict(np.load(directories[case] / "timesteps.npz"))
        rows = [
            {name: column[index].tolist() for name, column in timesteps.items()} for index in range(len(expected[case]))
        ]
        (tmp_path / "timesteps.json").write_text(json.dumps(rows))
        command = [node, "act.mjs", directories[case] / "onnx", "timesteps.json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        actions = np.array([row["action"] for row in json.loads(done.stdout)])
        np.testing.assert_allclose(actions.reshape(expected[case].shape), expected[case], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case, inputs, outputs",
    [
        slow("impala", {"observation", "first"}, {"action"}),
        (
            "impala-lstm",
            {"observation", "first", "state_hidden", "state_cell"},
            {"action", "state_hidden", "state_cell"},
        ),
        slow("apex", {"observation", "first", "state_frames_newest"}, {"action", "state_frames_newest"}),
        ("sac", {"observation", "first"}, {"action"}),
        slow("ppo", {"observation", "first"}, {"action"}),
        slow(
            "ppo-lstm",
            {"observation", "first", "state_hidden", "state_cell"},
            {"action", "state_hidden", "state_cell"},
        ),
        slow("ppo-gaussian", {"observation", "first"}, {"action"}),
    ],
)
def test_signatures(case, inputs, outputs, exports):
    model = tf.saved_model.load(str(exports(case) / "model"))
    acting, starting = (model.signatures[name] for name in ("serving_default", "initial_state"))
    assert set(acting.structured_input_signature[1]) == inputs
    assert set(acting.structured_outputs) == outputs
    assert all(spec.shape[0] is None for spec in acting.structured_input_signature[1].values())
    state = starting(batch_size=tf.constant(5))
    assert set(state) == outputs - {"action"}
    assert all(leaf.shape[0] == 5 for leaf in state.values())


@pytest.mark.slow
def test_r2d2_is_given_the_reward_as_well(exports):
    model = tf.saved_model.load(str(exports("r2d2") / "model"))
    inputs = set(model.signatures["serving_default"].structured_input_signature[1])
    assert {"observation", "first", "reward"} == {name for name in inputs if not name.startswith("state")}


class Noted(tf.Module):
    """Adds up what it is shown of the timestep; the dictionary that it is shown is one that Callboard would give."""

    def initial_state(self, batch_size):
        return {"sum": tf.zeros((batch_size, 2))}

    def __call__(self, timestep, state, slot, seed):
        total = state["sum"] + timestep.observation["arm"]["joint angles"] * timestep.discount[:, tf.newaxis]
        chance = tf.random.stateless_uniform((), seed) * tf.ones_like(timestep.discount)
        return {"push": total, "chance": chance, "which": slot}, (), {"sum": total}


def test_nested_observations_and_actions_have_names_and_chance_is_new_at_every_call(tmp_path):
    arm = {"joint angles": specs.Array((2,), np.float32)}
    spec = EnvironmentSpec({"arm": arm, "camera": specs.Array((4, 4, 3), np.uint8)}, ())
    signatures = save_policy_as_model(Noted(), spec, tmp_path / "model")
    assert set(signatures.inputs) == {
        "observation_arm_joint_angles",
        "observation_camera",
        "first",
        "discount",
        "state_sum",
    }
    acting = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    inputs = {
        "observation_arm_joint_angles": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        "observation_camera": np.zeros((3, 4, 4, 3), np.uint8),
        "discount": np.array([1, 0, 1], np.float32),
        "first": np.zeros(3, bool),
        "state_sum": np.full((3, 2), 10, np.float32),
    }
    one, other = (acting(**{name: tf.constant(value) for name, value in inputs.items()}) for _ in range(2))
    np.testing.assert_array_equal(one["state_sum"], [[11, 12], [10, 10], [15, 16]])
    np.testing.assert_array_equal(one["action_push"], one["state_sum"])
    np.testing.assert_array_equal(one["action_which"], [0, 1, 2])
    assert one["action_chance"][0] != other["action_chance"][0]


@pytest.mark.slow
def test_tensorflows_own_program_runs_the_signatures(tmp_path):
    write_run("impala-lstm", tmp_path / "run")
    model = tmp_path / "models" / "cartpole" / "1"
    assert main(["export", str(tmp_path / "run"), str(model)]) == 0
    program = pathlib.Path(sys.executable).with_name("saved_model_cli")

    def run(signature, **inputs):
        np.savez(tmp_path / "inputs.npz", **inputs)
        given = ";".join(f"{name}={tmp_path}/inputs.npz[{name}]" for name in inputs)
        where = ["--dir", model, "--tag_set", "serve", "--outdir", tmp_path, "--overwrite"]
        command = [program, "run", *where, "--signature_def", signature, "--inputs", given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    run("initial_state", batch_size=np.int32(2))
    states = {name: np.load(tmp_path / f"{name}.npy") for name in ("state_hidden", "state_cell")}
    assert all(state.shape == (2, 16) and not state.any() for state in states.values())
    observation = np.array([[0.1, -0.05], [0.0, 0.2]], np.float32)
    run("serving_default", observation=observation, first=np.array([True, True]), **states)
    actions, state = load_policy(model)(observation)
    np.testing.assert_array_equal(np.load(tmp_path / "action.npy"), actions)
    np.testing.assert_allclose(np.load(tmp_path / "state_hidden.npy"), state["state_hidden"], rtol=1e-5, atol=1e-6)


def test_every_part_has_a_name_of_its_own():
    assert leaf_names("observation", {"a b": 0, "a": {"b": 1}}) == [
        "observation_x2f_a_x2f_b",
        "observation_x2f_a_x20_b",
    ]
    assert leaf_names("observation", {"größe": 0}) == ["observation_gr_xf6__xdf_e"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["impala", "impala-lstm", "apex", "sac"])
def test_the_policy_of_a_run_by_the_command(case, start, tmp_path):
    settings = ("--launcher=inline", "--max-steps=2000", "--evaluator=false", *TRAINING.get(case, ()))
    training = start("train", *CASES[case], *settings, "--run-dir", tmp_path / "run")
    assert training.wait(300) == 0, training.text()
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "model"), "--checkpoint", "latest"]) == 0
    actions = play(tmp_path / "run", tmp_path, "latest")
    play_without_callboard([tmp_path])
    assert_same_actions(tmp_path, actions)
