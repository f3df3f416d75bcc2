"""The paths in a run directory, who may read it, and the mark that a run has ended."""

import os
import stat

import pytest

from callboard.errors import CallboardError
from callboard.launch.run_directory.layout import RunDirectory, is_checkpoint_name, newest_of_steps


@pytest.fixture
def directory(tmp_path):
    return RunDirectory(tmp_path / "run")


@pytest.mark.parametrize("name", ["000000000012", "000000000012.001"])
def test_a_checkpoint_is_named_after_its_step(name):
    assert is_checkpoint_name(name)
    for other in (f"damaged-{name}", f"draft-{name}", f"{name}.x", "best.npz", "incarnation", ""):
        assert not is_checkpoint_name(other)


def test_others_may_not_look_into_a_new_run_directory_and_one_that_exists_keeps_its_mode(directory, tmp_path):
    directory.create()
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    RunDirectory(tmp_path / "shared").create()
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755


def test_creating_makes_the_directories_and_removes_drafts_but_nothing_else(directory):
    directory.create()
    assert sorted(path.name for path in directory.path.iterdir()) == ["checkpoints", "logs"]
    (directory.path / "draft-metrics").touch()
    (directory.checkpoints / "draft-000000000001").mkdir()
    directory.best_policy.touch()
    directory.create()
    assert sorted(path.name for path in directory.path.iterdir()) == ["checkpoints", "logs"]
    assert list(directory.checkpoints.iterdir()) == [directory.best_policy]


def test_hosts_that_share_a_directory_have_temporary_files_and_locks_of_their_own(tmp_path):
    hosts = [RunDirectory(tmp_path, host) for host in ("", "a", "b")]
    assert len({host.temporary for host in hosts}) == 3
    assert len({host.lock(has_checkpoints=False) for host in hosts}) == 3
    assert {host.lock() for host in hosts} == {tmp_path / "lock"}
    assert hosts[1].experiment == hosts[2].experiment


def test_replay_shards_are_those_that_have_a_directory(directory):
    assert directory.replay_shards() == []
    for shard in (10, 2):
        directory.replay(shard).mkdir(parents=True)
    (directory.path / "replay" / "lost+found").mkdir()
    assert directory.replay_shards() == [2, 10]
    assert directory.log("actor/0").name == "actor-0.log"


def test_the_mark_of_an_ended_run_is_kept_until_it_is_resumed(directory):
    assert directory.end_of_run() == ""
    directory.create()
    directory.write_end_of_run("reached max_steps")
    assert RunDirectory(directory.path).end_of_run() == "reached max_steps"
    directory.resume()
    directory.resume()
    assert directory.end_of_run() == ""


def test_the_newest_checkpoint_of_every_step_is_kept():
    def kept(names, keep):
        return newest_of_steps(names, lambda name: name[0], keep)

    assert kept(["1", "2", "2.1", "3", "3.1"], 2) == ["2.1", "3.1"]
    assert kept(["3", "3.1", "3.2"], 2) == ["3.1", "3.2"]
    assert kept(["3", "3.1"], 1) == ["3.1"]
    assert kept(["1"], 2) == ["1"]


@pytest.mark.parametrize(
    "part",
    [
        "checkpoints",
        "logs",
        "metrics.jsonl",
        "experiment.yaml",
        "tensorboard",
        "checkpoints/best.npz",
        "replay/0",
        "episodes",
        "socket",
        "tmp",
        "tmp/x",
        "ended",
        "mlruns",
        "join-token",
        "policy_server_token",
    ],
)
def test_a_directory_with_a_link_in_it_is_refused(part, directory, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = directory.path / part
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CallboardError, match=f"^{link} is a symbolic link, and a run writes only into its own"):
        directory.create()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_parts_that_are_made_later_are_not_readable_by_others_either(directory):
    before = os.umask(0)
    try:
        directory.create()
        directory.make(directory.replay(3))
    finally:
        os.umask(before)
    for path in (directory.path, *directory.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
