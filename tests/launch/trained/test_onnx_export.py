"""ONNX models of policies: their names, spaces and state, and what cannot be one."""

import importlib.util
import json
import threading

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES
from dm_env import specs

from callboard import __version__
from callboard.errors import CallboardError
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.trained import onnx_export
from callboard.launch.trained.export import save_policy_as_model
from callboard.launch.trained.onnx_export import check_onnx, save_policy_as_onnx
from callboard.launch.trained.saved_runs import load_policy
from callboard.launch.trained.traced_policy import trace_policy
from callboard.specs import EnvironmentSpec

HAVE_ONNX = all(map(importlib.util.find_spec, ("tf2onnx", "onnxruntime")))
needs_onnx = pytest.mark.skipif(not HAVE_ONNX, reason="the extra onnx is not installed")


class Sums(tf.Module):
    """Adds up what it is shown; an output is an input, and another is there twice."""

    def __init__(self, **outputs):
        super().__init__()
        self.scale = tf.Variable(2.0)
        self._outputs = outputs

    def initial_state(self, batch_size):
        return {"sum": tf.ones((batch_size, 2)), "kept": tf.zeros((batch_size,), tf.int32)}

    def __call__(self, timestep, state, slot, seed):
        arm, image = timestep.observation["größe/a b"], tf.cast(timestep.observation["camera"], tf.float32)
        seen = tf.where(timestep.first[:, tf.newaxis], arm, state["sum"] + arm)
        bright = tf.math.log1p(tf.reduce_mean(image, axis=(1, 2, 3)) * self.scale) + tf.math.expm1(timestep.reward)
        outputs = {name: make(bright, seed) for name, make in self._outputs.items()}
        return {"push": seen, "again": seen, "bright": bright, **outputs}, (), {**state, "sum": seen}


class Doubled(tf.Module):
    """Answers each part of an observation with an action of the same name."""

    def __init__(self, names):
        super().__init__()
        self.names, self.scale = names, tf.Variable(2.0)

    def initial_state(self, batch_size):
        return {name: tf.zeros((batch_size,), tf.int32) for name in self.names}

    def __call__(self, timestep, state, slot, seed):
        doubled = {name: value * self.scale for name, value in timestep.observation.items()}
        return doubled, (), {name: count + 1 for name, count in state.items()}


ODD_NAMES = [
    *("größe", "a/b", "a b", "a_b", "", "_", "'\"`$", "{0}%s", "x" * 300, "x" * 5000, "日本語", "😀", "\n\t", "first"),
    *("reward", "next_", "state", "..", "/", "A", "a", "const", "Identity:0", "^x", "e\u0301", "é", "1", "01", "\0"),
    *("\ud800", "\x1b[2J"),
]

SPEC = EnvironmentSpec({"größe/a b": specs.Array((2,), np.float32), "camera": specs.Array((4, 4, 3), np.uint8)}, {
    "push": specs.Array((2,), np.float32), "again": specs.Array((2,), np.float32), "bright": specs.Array((), np.float32)
})  # fmt: skip


@pytest.mark.parametrize("form", [pytest.param("onnx", marks=needs_onnx), "saved_model"])
def test_parts_may_have_any_names(form, tmp_path, caplog):
    parts = {name: specs.Array((2,), np.float32) for name in ODD_NAMES}
    spec, policy = EnvironmentSpec(parts, parts), Doubled(ODD_NAMES)
    observation = {name: np.full((1, 2), index, np.float32) for index, name in enumerate(ODD_NAMES)}
    if form == "saved_model":
        save_policy_as_model(policy, spec, tmp_path / "model")
        # Of this thread: those of other tests may still say that a node has gone.
        assert not [one for one in caplog.records if one.thread == threading.get_ident()]
        actions, _ = load_policy(tmp_path / "model")(observation)
    else:
        import onnxruntime

        save_policy_as_onnx(trace_policy(policy, spec), spec, tmp_path / "model", {})
        about = json.loads((tmp_path / "model" / "policy.json").read_text(encoding="utf-8"))
        session = onnxruntime.InferenceSession(tmp_path / "model" / "policy.onnx")
        inputs = {leaf["name"]: observation[leaf["path"][1]] for leaf in about["inputs"] if "path" in leaf}
        inputs |= {leaf["name"]: np.zeros(1, np.int32) for leaf in about["state"]} | {"first": np.zeros(1, bool)}
        inputs = {name: value for name, value in inputs.items() if name in {leaf.name for leaf in session.get_inputs()}}
        found = session.run([leaf["name"] for leaf in about["outputs"]], inputs)
        actions = {leaf["path"][1]: value for leaf, value in zip(about["outputs"], found, strict=True)}
    assert set(actions) == set(ODD_NAMES)
    for name in ODD_NAMES:
        np.testing.assert_array_equal(actions[name], 2 * observation[name], err_msg=ascii(name))


@needs_onnx
def test_names_spaces_state_and_batch(tmp_path):
    import onnxruntime

    save_policy_as_onnx(trace_policy(Sums(), SPEC), SPEC, tmp_path / "new" / "policy", {"agent": "sums"})
    assert sorted(path.name for path in (tmp_path / "new" / "policy").iterdir()) == ["policy.json", "policy.onnx"]
    about = json.loads((tmp_path / "new" / "policy" / "policy.json").read_text(encoding="utf-8"))
    assert about["agent"] == "sums" and about["callboard"] == __version__
    arm = next(leaf for leaf in about["inputs"] if leaf["name"] == "observation_gr_xf6__xdf_e_a_b")
    assert arm["path"] == ["observation", "größe/a b"]
    assert arm["dtype"] == "float32" and arm["shape"] == ["batch", 2]
    assert {leaf["name"]: leaf["start"] for leaf in about["state"]} == {"state_sum": 1.0, "state_kept": 0}
    session = onnxruntime.InferenceSession(tmp_path / "new" / "policy" / "policy.onnx")
    assert all(leaf.shape[0] == "batch" for leaf in (*session.get_inputs(), *session.get_outputs()))
    for batch in (1, 3):
        found = session.run(
            ["action_push", "action_bright", "next_state_sum", "next_state_kept"],
            {
                arm["name"]: np.full((batch, 2), 3, np.float32),
                "observation_camera": np.full((batch, 4, 4, 3), 200, np.uint8),
                "first": np.arange(batch) == 1,
                "reward": np.full(batch, 0.5, np.float32),
                "state_sum": np.full((batch, 2), 10, np.float32),
                "state_kept": np.full(batch, 7, np.int32),
            },
        )
        push = np.array([[13, 13], [3, 3], [13, 13]])[:batch]
        bright = np.full(batch, np.log1p(400) + np.expm1(0.5))
        for one, wanted in zip(found, (push, bright, push, np.full(batch, 7)), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "make, samples",
    [
        (lambda bright, seed: tf.random.stateless_uniform((), seed) + bright, True),
        (lambda bright, seed: tf.random.normal(tf.shape(bright)), True),
        (lambda bright, seed: 2 * bright, False),
    ],
)
def test_a_policy_that_samples_is_known(make, samples):
    assert trace_policy(Sums(other=make), SPEC).samples == samples


@needs_onnx
def test_what_cannot_be_converted_is_named_and_nothing_is_written(tmp_path):
    def python(bright, seed):
        return tf.ensure_shape(tf.numpy_function(lambda value: value, [bright], tf.float32), (None,))

    with pytest.raises(CallboardError, match="uses PyFunc, for which ONNX has no operation: leave --format out"):
        save_policy_as_onnx(trace_policy(Sums(other=python), SPEC), SPEC, tmp_path / "policy", {})
    assert not list(tmp_path.iterdir())


@needs_onnx
def test_a_model_that_acts_differently_is_not_written(tmp_path, monkeypatch):
    policy, convert = Sums(), onnx_export._converted

    def converted(traced):
        model = convert(traced)
        policy.scale.assign(3.0)
        return model

    monkeypatch.setattr(onnx_export, "_converted", converted)
    with pytest.raises(CallboardError, match="acts differently from the policy, in action_bright"):
        save_policy_as_onnx(trace_policy(policy, SPEC), SPEC, tmp_path / "policy", {})
    assert not list(tmp_path.iterdir())


def test_without_the_extra_a_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else object())
    with pytest.raises(CallboardError, match=r"--format onnx needs tf2onnx: .*pip install .*callboard\[onnx\]"):
        check_onnx()


@pytest.mark.slow
@needs_onnx
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in AGENT_CASES])
def test_every_agent(case, tmp_path):
    """The check against the policy is the exporter's own."""
    experiment = parse_experiment(case.name, read_recipe(case.recipe), [f"--run-dir={tmp_path / 'run'}"])
    layout = check_experiment(experiment).whole
    policy = experiment.agent.make_policy(experiment.agent.make_networks(layout), "evaluate")
    rng = np.random.default_rng(3)
    for variable in policy.variables:
        if variable.shape.rank > 1:
            variable.assign(rng.normal(size=variable.shape))
    spec = experiment.agent.acting_spec(layout.spec)
    traced = trace_policy(policy, spec)
    assert not traced.samples
    signatures = save_policy_as_onnx(traced, spec, tmp_path / "policy", {})
    assert {f"next_{name}" for name in signatures.state} <= set(signatures.outputs)
