"""Runs in a folder, by path and by URL."""

import pytest
from synthetic_runs import write_run

from callboard.errors import CallboardError
from callboard.launch.run_directory.found_runs import find_runs, no_run, runs_in


def test_runs_are_found_at_any_depth_in_natural_order(tmp_path):
    for name in ("study/b/seed-10", "study/b/seed-2", "study/a/seed-1"):
        write_run(tmp_path / name, [(1000, 1.0)])
    (tmp_path / "study" / "a" / "seed-1" / "checkpoints" / "copy").mkdir()
    (tmp_path / "study" / "a" / "seed-1" / "checkpoints" / "copy" / "experiment.yaml").touch()
    names = [str(tmp_path / "study" / name) for name in ("a/seed-1", "b/seed-2", "b/seed-10")]
    assert find_runs(str(tmp_path / "study")) == names
    assert find_runs(names[1]) == [names[1]]
    assert str(no_run(str(tmp_path / "study"))).endswith(f"no experiment.yaml; name a run in it, such as {names[0]}")


def test_runs_at_a_url(tmp_path):
    pytest.importorskip("fsspec")
    write_run(tmp_path / "seed-1", [(1000, 1.0)])
    assert find_runs(f"file://{tmp_path}/seed-1/") == find_runs(f"file://{tmp_path}") == [f"file://{tmp_path}/seed-1"]


def test_a_folder_without_runs_is_refused(tmp_path):
    for name in (str(tmp_path), str(tmp_path / "nowhere"), ""):
        with pytest.raises(CallboardError, match="there is no run in .*: no experiment.yaml is there or below it"):
            find_runs(name)
        assert runs_in(name) == []


def test_weights_stand_for_the_whole_run_unless_a_step_is_named(tmp_path):
    write_run(tmp_path / "seed-1", [(1000, 1.0)])
    run = str(tmp_path / "seed-1")
    assert find_runs(f"{run}@latest") == find_runs(f"{run}@best") == find_runs(f"{tmp_path}@latest") == [run]
    for error in (no_run(f"{run}@latest"), no_run(f"{run}@200")):
        assert str(error) == f"the whole run is meant here, not the weights of a step: name {run}"
    with pytest.raises(CallboardError, match=f"not the weights of a step: name {run}$"):
        find_runs(f"{run}@200")


def test_an_exported_policy_is_no_run(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert "It is an exported policy: name its run, or read it with callboard.load_policy" in str(no_run(str(tmp_path)))
