"""References to the weights of a run."""

import pathlib

import pytest

from callboard.errors import CallboardError
from callboard.launch.run_directory.found_runs import parse_run_reference


@pytest.mark.parametrize(
    "text, run, checkpoint",
    [
        ("runs/x", "runs/x", ""),
        (pathlib.Path("runs/x"), "runs/x", ""),
        ("runs/x@latest", "runs/x", "latest"),
        ("runs/x@1200", "runs/x", "1200"),
        ("runs/me@home/x", "runs/me@home/x", ""),
        ("runs/me@home/x@best", "runs/me@home/x", "best"),
        ("s3://bucket/x@latest", "s3://bucket/x", "latest"),
        ("ftp://me@host/x", "ftp://me@host/x", ""),
        ("runs/x@000000001000.002", "runs/x", "000000001000.002"),
        ("runs/x/checkpoints/000000001000", "runs/x", "000000001000"),
        ("runs/x/checkpoints/000000001000.002/", "runs/x", "000000001000.002"),
        ("s3://bucket/x/checkpoints/000000001000", "s3://bucket/x", "000000001000"),
        ("checkpoints/000000000007", ".", "000000000007"),
        ("runs/x/checkpoints", "runs/x/checkpoints", ""),
        ("runs/1000", "runs/1000", ""),
    ],
)
def test_a_reference_names_a_run_and_a_checkpoint(text, run, checkpoint):
    reference = parse_run_reference(text)
    assert reference == (run, checkpoint)
    assert str(reference) == (f"{run}@{checkpoint}" if checkpoint else run)


def test_a_directory_with_an_at_sign_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x@latest").mkdir()
    assert parse_run_reference("x@latest", default="5") == ("x@latest", "5")


@pytest.mark.parametrize("text", ["runs/x@newest", "runs/x@-3", "runs/x@", "runs/x@１２"])
def test_other_words_name_no_checkpoint(text):
    with pytest.raises(CallboardError, match="unknown checkpoint '.*' in runs/x@.*; write @best, @latest or @ and a"):
        parse_run_reference(text)
