"""Checkpoints: whatever happens to the newest one, the one before it is used; nothing that fails harms them."""

import contextlib
import errno
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from damages import DAMAGES, empty

from callboard.errors import CallboardError
from callboard.files import atomic_files
from callboard.files.manifest import write_manifest
from callboard.launch.run_directory.checkpoints import Checkpoints, NotWritten, step_of
from callboard.launch.run_directory.layout import RunDirectory

FILES = ["counters.json", "learner.data-00000-of-00001", "learner.index", "manifest.json", "policy.npz"]


def variables(value):
    return [tf.Variable(np.full((2, 3), value, np.float32), name="weights")]


def save(checkpoints, step, keep=False):
    networks = module(variables(step))
    return checkpoints.save(
        step, {"learner": tf.Module(), "networks": networks}, networks, {"actor/0#a": {"steps": step}}, keep=keep
    )


def module(weights):
    made = tf.Module()
    made.weights = weights
    return made


def left(run):
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_the_files_of_a_checkpoint_are_all_that_are_damaged_here(run):
    assert sorted(path.name for path in save(Checkpoints(run), 1).iterdir()) == FILES


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", DAMAGES)
def test_the_one_before_a_damaged_checkpoint_is_used(run, said, name, how):
    for step in (1, 2):
        newest = save(Checkpoints(run), step)
    DAMAGES[how](newest / name)
    checkpoints = Checkpoints(run, said.append)
    latest = checkpoints.latest()
    assert step_of(latest) == 1 and checkpoints.counter_sources() == {"actor/0#a": {"steps": 1}}
    (line,) = said
    assert line.startswith(f"the checkpoint {newest.name} is damaged ({name} ") and "\n" not in line
    assert line.endswith(f"; it is kept as damaged-{newest.name}")
    assert left(run) == ["000000000001", "damaged-000000000002"]
    weights = variables(0)
    checkpoints.restore(latest, {"learner": tf.Module(), "networks": module(weights)}, weights)
    assert (weights[0].numpy() == 1).all()
    assert save(checkpoints, 2).name == "000000000002"


def test_where_all_are_damaged_nothing_begins_anew_without_a_word(run, said):
    empty(save(Checkpoints(run), 7) / "policy.npz")
    for _ in range(2):
        checkpoints = Checkpoints(run, said.append)
        with pytest.raises(
            CallboardError, match="no checkpoint in .* can be used, damaged-0.*7 is damaged; replace it"
        ):
            checkpoints.latest()
        assert checkpoints.counter_sources() == {}
    assert len(said) == 1
    checkpoints.remove_all()
    assert checkpoints.latest() is None


def test_a_directory_that_cannot_be_written_to_is_read(run, said, monkeypatch):
    for step in (1, 2):
        newest = save(Checkpoints(run), step)
    empty(newest / "policy.npz")

    def refuse(source, target):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("os.rename", refuse)
    assert step_of(Checkpoints(run, said.append).latest()) == 1
    (line,) = said
    assert line.startswith("the checkpoint 000000000002 is damaged (policy.npz ") and line.endswith(" and not used")


def test_two_checkpoints_of_one_step(run):
    checkpoints = Checkpoints(run)
    for _ in range(4):
        newest = save(checkpoints, 5)
    assert checkpoints.latest() == newest and step_of(newest) == 5
    assert left(run) == ["000000000005.002", "000000000005.003"]
    save(checkpoints, 6)
    assert left(run) == ["000000000005.003", "000000000006"]


def test_one_that_is_to_be_kept_is_never_removed_and_takes_no_other_s_place(run):
    checkpoints = Checkpoints(run)
    save(checkpoints, 1, keep=True)
    for step in (2, 3, 4):
        save(checkpoints, step)
    assert left(run) == ["000000000001", "000000000003", "000000000004"]
    save(checkpoints, 5, keep=True)
    checkpoints.replace_counters({"actor/0#a": {"steps": 9}})
    assert checkpoints.counter_sources() == {"actor/0#a": {"steps": 9}}
    for step in (6, 7):
        save(checkpoints, step)
    assert left(run) == ["000000000001", "000000000005", "000000000006", "000000000007"]


def test_one_of_several_of_a_step_is_found_by_its_name(run):
    checkpoints = Checkpoints(run)
    first, second = save(checkpoints, 5, keep=True), save(checkpoints, 5)
    assert checkpoints.named(first.name) == first and checkpoints.named(second.name) == second
    assert checkpoints.named("5") == second and checkpoints.named("6") is None
    empty(first / "policy.npz")
    assert Checkpoints(run).named(first.name) == second


class Death(BaseException):
    """The process ends here: what follows runs only because this is one process."""


class Deadly:
    """A function, at whose call number `survived` + 1 the process dies."""

    def __init__(self, function, survived):
        self._function = function
        self._survived = survived
        self.calls = 0

    def __call__(self, *arguments, **options):
        self.calls += 1
        if self.calls > self._survived:
            raise Death
        return self._function(*arguments, **options)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("module, name", [(os, "replace"), (os, "rename"), (os, "fsync"), (shutil, "rmtree")])
def test_a_death_at_any_operation_leaves_a_good_checkpoint(run, monkeypatch, module, name):
    """While the step is saved that has a checkpoint already."""
    for survived in range(30):
        directory = RunDirectory(run.path / str(survived))
        directory.create()
        for step in (4, 5):
            save(Checkpoints(directory), step)
        deadly = Deadly(getattr(module, name), survived)
        with monkeypatch.context() as patch, contextlib.suppress(Death):
            patch.setattr(module, name, deadly)
            patch.setattr(atomic_files, "_remove", lambda path: None)
            save(Checkpoints(directory), 5)
        said = []
        assert step_of(Checkpoints(directory, said.append).latest()) == 5 and not said
        directory.create()
        assert not list(directory.checkpoints.glob("draft-*"))
        if deadly.calls <= survived:
            return
    raise AssertionError(f"more than 30 calls of {name}")


@pytest.mark.parametrize(
    "target",
    [
        "numpy.savez",
        "callboard.launch.run_directory.checkpoints.write_manifest",
        "os.fsync",
        "tensorflow.train.Checkpoint.write",
    ],
)
def test_a_full_disk_harms_no_checkpoint(run, monkeypatch, target):
    checkpoints = Checkpoints(run)
    save(checkpoints, 1)

    def fail(*arguments, **options):
        if "tensorflow" in target:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(target, fail)
        with pytest.raises(NotWritten, match="^No space left on device$"):
            save(checkpoints, 2)
    assert left(run) == ["000000000001"]
    save(checkpoints, 2)
    assert left(run) == ["000000000001", "000000000002"]


@pytest.mark.parametrize("content", ["", "\0\0", "x"])
def test_starts_are_counted_on_where_their_number_is_lost(run, content):
    checkpoints = Checkpoints(run)
    assert [checkpoints.next_incarnation() for _ in range(3)] == [0, 1, 2]
    (run.checkpoints / "incarnation").write_text(content)
    number = checkpoints.next_incarnation()
    assert 2 < number < 2**31 and checkpoints.next_incarnation() == number + 1


def test_who_only_reads_leaves_damaged_checkpoints_where_they_are(run, said):
    for step in (1, 2):
        newest = save(Checkpoints(run), step)
    empty(newest / "policy.npz")
    before = left(run)
    checkpoints = Checkpoints(run, said.append, read_only=True)
    assert step_of(checkpoints.latest()) == 1 and checkpoints.newest_step() == 1
    assert left(run) == before
    (line,) = said
    assert line.endswith(" and not used")
    empty(checkpoints.latest() / "policy.npz")
    with pytest.raises(CallboardError, match="no checkpoint in .* can be used, 000000000002 is damaged; replace it"):
        Checkpoints(run, said.append, read_only=True).latest()
    assert left(run) == before


@pytest.mark.parametrize("counts", ['{"past": 5}', '{"past": {"environment_steps": 1e999}}', "[]", '{"a": {"b": -1}}'])
def test_a_checkpoint_whose_counters_cannot_be_used_is_damaged(counts, run, said):
    for step in (1, 2):
        newest = save(Checkpoints(run), step)
    (newest / "counters.json").write_text(counts)
    write_manifest(newest)
    assert step_of(Checkpoints(run, said.append).latest()) == 1
    assert said[0].startswith("the checkpoint 000000000002 is damaged (counters.json cannot be used: ")
