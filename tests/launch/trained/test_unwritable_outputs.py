"""What a trained policy is written to may be unwritable: one line says so."""

import os
import shutil

import pytest
from untrained_runs import DEFAULTS, write_run

from callboard import export
from callboard.cli.command import main
from callboard.errors import CallboardError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run", options=DEFAULTS)[1].path


@pytest.fixture
def refused(tmp_path, capsys):
    (tmp_path / "file").touch()

    def check(place, *arguments):
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{place} cannot be written: " in line and line.endswith("; name another place")
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("draft-")] == []

    return check


@pytest.mark.parametrize("form", ["saved-model", "onnx"])
def test_exports(run, tmp_path, refused, form):
    if form == "onnx":
        pytest.importorskip("tf2onnx")
        pytest.importorskip("onnxruntime")
    refused(tmp_path / "file" / "x", "export", run, tmp_path / "file" / "x", "--format", form)
    with pytest.raises(CallboardError, match="/proc/x cannot be written: .*; name another place"):
        export(run, "/proc/x", form)


def test_videos_are_refused_before_an_episode_is_played(run, tmp_path, refused, monkeypatch):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "videos").touch()
    monkeypatch.setattr("callboard.launch.trained.evaluation.play_episodes", lambda *_: pytest.fail("it was played"))
    refused(tmp_path / "run/videos/best.mp4", "evaluate", tmp_path / "run", "--video")


def test_recordings(run, tmp_path, refused, monkeypatch):
    pytest.importorskip("minari")
    refused(tmp_path / "file" / "x-v0", "evaluate", run, "--episodes", "1", "--record", tmp_path / "file" / "x-v0")
    replace = os.replace

    def full(source, target):
        if "parts" in str(target):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    refused(tmp_path / "x-v0", "evaluate", run, "--episodes", "1", "--record", tmp_path / "x-v0")
    assert [path.name for path in tmp_path.rglob("draft-*")] == []
