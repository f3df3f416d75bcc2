"""The settings of warm starts, before there is a network."""

import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.warm_start_settings import (
    absolute_source,
    check_parts,
    check_source_exists,
    parse_source,
)
from callboard.launch.run_directory.found_runs import RunReference


@pytest.mark.parametrize(
    "text, expected",
    [
        ("runs/x", ("runs/x", "latest")),
        ("runs/x@best", ("runs/x", "best")),
        ("runs/x@1200", ("runs/x", "1200")),
        ("s3://bucket/x@latest", ("s3://bucket/x", "latest")),
    ],
)
def test_a_source_is_a_run_and_a_checkpoint(text, expected):
    assert parse_source(text) == expected


@pytest.mark.parametrize("text, problem", [("", "init_from .* names no run"), ("a\0b", "the run .* null character")])
def test_a_source_without_a_run_is_refused(text, problem):
    with pytest.raises(CallboardError, match=problem):
        parse_source(text)


def test_a_source_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(CallboardError, match="there is no run in .*nowhere to take weights from .*no experiment.yaml"):
        check_source_exists(RunReference(str(tmp_path / "nowhere"), "best"))
    (tmp_path / "experiment.yaml").touch()
    check_source_exists(RunReference(str(tmp_path), "best"))
    check_source_exists(RunReference("s3://bucket/nowhere", "best"))


@pytest.mark.parametrize(
    "init_from, init_parts, freeze, message",
    [
        (None, "torso", (), "init_parts needs a run to take the parts from"),
        ("runs/x", "torso,", (), "init_parts has an empty pattern"),
        ("runs/x", (), ("torso", "/"), "freeze has an empty pattern"),
        ("runs/x@bset", (), (), "bset"),
    ],
)
def test_settings_that_contradict_are_refused(init_from, init_parts, freeze, message):
    with pytest.raises(CallboardError, match=message):
        check_parts(init_from, init_parts, freeze)


def test_settings_that_fit_are_accepted():
    check_parts(None, (), "torso")
    check_parts("runs/x@best", ("torso/*",), ())


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_source("runs/x@best") == f"{tmp_path}/runs/x@best"
    assert absolute_source("s3://a/b") == "s3://a/b@latest"
    assert absolute_source(None) is None
