"""The directory of a new or resumed run: its name, and what is refused before anything is written."""

import os
import re
import types

import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.new_or_resumed import check_state, default_run_directory, find_run_directory
from callboard.launch.run_directory.layout import RunDirectory


@pytest.mark.parametrize(
    "run_dir, message",
    [
        ("file", "is a file; name another one"),
        ("file/run", "is a file"),
        ("link", "link is a symbolic link to nowhere, which does not exist; make that directory"),
        ("link/run", "link is a symbolic link to nowhere, which does not exist; make that directory"),
        ("n" * 300, "a name of 300 bytes"),
        ("x/" * 3000, "a path of "),
        ("a\x1b[2J", "has control codes, or bytes that are no UTF-8, in its path; name another"),
        ("a\nb/run", "has control codes"),
        ("a\x9b", "has control codes"),
        ("a\udcff", "has control codes, or bytes"),
        ("a\0b", "run_dir must be text, a path or null"),
    ],
)
def test_a_run_directory_that_cannot_be_made_is_refused(tmp_path, run_dir, message):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(CallboardError, match=message):
        find_run_directory(Experiment(Impala(), "CartPole-v1", run_dir=tmp_path / run_dir), resume=False)


def test_a_run_directory_that_is_nearly_a_url_is_refused():
    with pytest.raises(CallboardError, match="'s3:/bucket/x' is no URL: write s3:// with two slashes"):
        find_run_directory(Experiment(Impala(), "CartPole-v1", run_dir="s3:/bucket/x"), resume=False)


def test_a_home_directory_is_written_in_full(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    with pytest.raises(CallboardError, match="'~/x' begins with ~: write '/home/ann/x' in full"):
        find_run_directory(Experiment(Impala(), "CartPole-v1", run_dir="~/x"), resume=False)


def test_a_working_directory_that_was_removed_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(CallboardError, match="the working directory does not exist any more: go to another one"):
        find_run_directory(Experiment(Impala(), "CartPole-v1", run_dir="x"), resume=False)


def test_an_empty_run_directory_is_not_the_working_directory():
    with pytest.raises(CallboardError, match="run_dir is empty: name a directory, or leave it out"):
        find_run_directory(Experiment(Impala(), "CartPole-v1", run_dir=""), resume=False)


@pytest.mark.parametrize(
    "flags, why", [(os.ST_RDONLY, "{} is on a read-only file system"), (0, "you may not write to {}")]
)
def test_a_run_directory_that_cannot_be_written_is_refused_with_the_reason(tmp_path, monkeypatch, flags, why):
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    monkeypatch.setattr(os, "statvfs", lambda path: types.SimpleNamespace(f_flag=flags))
    with pytest.raises(CallboardError, match=f"cannot be written: {why.format(tmp_path)}$"):
        find_run_directory(Experiment(Impala(), "CartPole-v1", run_dir=tmp_path / "run"), resume=False)


def test_a_run_without_a_directory_is_named_after_agent_environment_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = Experiment(Impala(), "ALE/Pong-v5")
    found = find_run_directory(experiment, resume=False)
    assert re.fullmatch(r"impala-ALE_Pong-v5-\d{8}-\d{6}-[a-z0-9]{6}", found.path.name)
    assert found.path.parent == tmp_path / "runs"
    assert find_run_directory(experiment, False, agent="mine:MyAgent").path.name.startswith("myagent-ALE")
    assert not list(tmp_path.iterdir())


def test_runs_that_start_in_the_same_second_have_directories_of_their_own():
    experiment = Experiment(Impala(), "ALE/Pong-v5")
    names = {default_run_directory(experiment, "impala") for _ in range(1000)}
    assert len(names) == 1000


def test_only_a_directory_with_a_run_is_resumed_and_only_one_without_is_new(tmp_path):
    directory = RunDirectory(tmp_path)
    assert not check_state(directory, "here", resume=False).replaces
    with pytest.raises(CallboardError, match="there is no run to resume in here: it has no experiment.yaml"):
        check_state(directory, "here", resume=True)
    make_run(directory)
    assert not check_state(directory, "here", resume=True).replaces
    with pytest.raises(CallboardError, match="there is already a run in here; continue it with resume=True"):
        check_state(directory, "here", resume=False)
    with pytest.raises(CallboardError, match="resume needs the run's directory"):
        find_run_directory(Experiment(Impala(), "CartPole-v1"), resume=True)


def test_a_run_that_is_overwritten_is_replaced(tmp_path):
    directory = RunDirectory(tmp_path)
    make_run(directory)
    assert check_state(directory, "here", resume=False, overwrite=True).replaces
    with pytest.raises(CallboardError, match="either resumed or overwritten"):
        check_state(directory, "here", resume=True, overwrite=True)


def make_run(directory):
    directory.experiment.touch()
    (directory.checkpoints / "000000000001").mkdir(parents=True)
