"""The files of a run that begins."""

import errno
import os
import tempfile

import pytest

from callboard.agents.impala import Impala
from callboard.environments.batches.spec_files import parse_spec
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_files import begun
from callboard.launch.experiments.settings import read_experiment
from callboard.launch.run_directory.layout import RunDirectory


def make_run(path, **fields):
    experiment = Experiment(Impala(), "CartPole-v1", run_dir=path, seed=9)
    return Run(experiment, experiment.layout(), RunDirectory(path, **fields))


def test_the_experiment_and_the_spec_are_written_and_temporary_files_are_created_in_the_run_directory(tmp_path):
    run = make_run(tmp_path / "run")
    before = tempfile.gettempdir()
    with begun(run):
        assert read_experiment(run.directory.path) == run.experiment
        assert parse_spec(run.directory.environment.read_text()) == run.layout.spec
        with tempfile.NamedTemporaryFile() as file:
            assert file.name.startswith(str(run.directory.temporary))
    assert tempfile.gettempdir() == before


def test_a_run_at_a_url_stores_its_experiment_and_its_spec_there(tmp_path):
    run = make_run(tmp_path / "local", url=f"file://{tmp_path}/bucket")
    with begun(run):
        for path in (run.directory.experiment, run.directory.environment):
            assert (tmp_path / "bucket" / path.name).read_text() == path.read_text()


def test_a_directory_that_cannot_be_written_is_refused_in_one_line(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("callboard.launch.experiments.run_files.write_experiment", full)
    with (
        pytest.raises(CallboardError, match="run cannot be written: No space left on device$"),
        begun(make_run(tmp_path / "run")),
    ):
        pytest.fail("the run has begun")
