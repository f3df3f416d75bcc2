"""`callboard export`: mistakes write nothing, and what it says of the SavedModel."""

import pytest
from untrained_runs import write_run

from callboard.cli.command import main


@pytest.mark.parametrize(
    "run, directory, message",
    [
        ("nowhere", "new", "there is no run in nowhere"),
        ("run", "taken", "taken is not empty; name a new directory"),
        ("run", "file", "file is a file"),
        ("run", "model.onnx", "model.onnx is named as an ONNX model: name a directory, with --format onnx"),
        ("run", "--format=onnx model.onnx", "model.onnx is named as an ONNX model: name a directory, in which"),
        ("run", "new", "run has no checkpoint latest; choose from best"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(run, directory, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", steps=() if directory == "new" else (5,))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", run, *directory.split(), "--checkpoint", "latest"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("callboard: ") and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow("daily")
def test_inputs_and_outputs_of_the_saved_model_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", steps=(5,))
    assert main(["export", "run", "policy", "--checkpoint", "5"]) == 0
    first, inputs, outputs = capsys.readouterr().out.splitlines()
    assert first == "run/checkpoints/000000000005/policy.npz is now the SavedModel policy"
    assert inputs.startswith("inputs: ") and "observation float32(None, 4)" in inputs and "first bool(None,)" in inputs
    assert outputs.startswith("outputs: action int32(None,)")
    assert (tmp_path / "policy" / "saved_model.pb").exists()


def test_an_onnx_model_cannot_sample(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tf2onnx")
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", "run", "policy", "--format", "onnx", "--mode", "sampled"]) == 2
    assert "an ONNX model cannot sample, as this policy does in evaluations: set the mode to greedy" in (
        capsys.readouterr().err
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_inputs_and_outputs_of_the_onnx_model_are_shown(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tf2onnx")
    monkeypatch.chdir(tmp_path)
    write_run(
        tmp_path / "run",
        "r2d2",
        ("--env=CartPole-v1", "--agent.network.lstm-size=4", "--agent.network.hidden-sizes=[4]"),
    )
    assert main(["export", "run", "policy", "--format", "onnx", "--epsilon", "0.1"]) == 2
    assert "set epsilon to 0" in capsys.readouterr().err
    assert main(["export", "run", "policy", "--format", "onnx"]) == 0
    first, inputs, outputs = capsys.readouterr().out.splitlines()
    assert first == "run/checkpoints/best.npz is now the ONNX model policy"
    assert "state_core_hidden float32(None, 4)" in inputs and "next_state_core_hidden float32(None, 4)" in outputs
