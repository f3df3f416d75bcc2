"""A run whose directory was renamed, deleted or replaced ends, and makes no second half of it."""

import os
import re
import shutil

import pytest

from callboard.errors import CallboardError
from callboard.launch.run_directory.directory_identity import held_directory
from callboard.launch.run_directory.layout import RunDirectory


def rename(path):
    path.rename(path.with_name("elsewhere"))


def delete(path):
    while path.exists():
        # A run writes in the meantime.
        shutil.rmtree(path, ignore_errors=True)


def replace(path):
    rename(path)
    path.mkdir()


def replace_by_same_number(path):
    """File systems give the number of a directory that was removed to the next one."""
    delete(path)
    path.mkdir()


LOSSES = {
    rename: "was renamed or deleted",
    delete: "was renamed or deleted",
    replace: "was replaced by another one",
    replace_by_same_number: "was replaced by another one",
}


@pytest.mark.parametrize("lose", LOSSES)
def test_no_part_of_a_lost_directory_is_made_again(lose, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    directory = directory.identified()
    policy = directory.of_policy("red")
    policy.make(policy.snapshots)
    assert not directory.is_lost
    with held_directory(directory.path):
        lose(directory.path)
        for part in (directory, policy):
            with pytest.raises(
                CallboardError, match=f"^the run directory {re.escape(str(directory.path))} {LOSSES[lose]} .*"
            ):
                part.make(part.snapshots)
    assert not directory.path.exists() or not os.listdir(directory.path)


def test_another_machine_compares_no_numbers(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    identity = directory.identified().identity
    shutil.rmtree(directory.path)
    identity._replace(host="another").check()
    with pytest.raises(CallboardError):
        identity.check()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "threads", "processes", "launchpad", "hosts", "ray"])
@pytest.mark.parametrize("lose", [rename, replace_by_same_number])
def test_a_run_ends_without_its_directory(launcher, lose, train):
    run = train("--launcher", launcher, "--checkpoint-every", "1", "--max-steps", "1000000")
    run.wait_until(lambda: run.process.poll() is not None or any(run.run_dir.glob("checkpoints/[0-9]*")))
    assert run.process.poll() is None, run.text()
    lose(run.run_dir)
    assert run.wait(90) == 1, run.text()
    lines = [line for line in run.text().splitlines() if "failed: the run directory" in line]
    # Launchpad adds the tracebacks of nodes that are left behind because they do not end in time.
    failed = [line for line in lines if not line.startswith("RuntimeError: ")]
    assert len(failed) == 1 and LOSSES[lose] in failed[0]
    assert not run.run_dir.exists() or not os.listdir(run.run_dir)
    assert run.leftovers() == []
