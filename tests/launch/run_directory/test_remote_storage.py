"""Run directories at a URL: what is stored, what is fetched, and what half a checkpoint is taken for: none."""

import os
import pathlib

import pytest

from callboard.errors import CallboardError
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.remote_storage import Mirror, Storage, fetch_run, is_url, local_copy
from callboard.manifest import write_manifest


@pytest.fixture
def bucket(tmp_path):
    return tmp_path / "bucket" / "run"


@pytest.fixture
def storage(bucket):
    return Storage(f"file://{bucket}")


def directory_of(tmp_path, node):
    directory = RunDirectory(tmp_path / node.replace("/", "-"))
    directory.create()
    directory.log(node).write_text("begins\n")
    return directory


def write_checkpoint(directory, step, content="weights"):
    folder = directory.checkpoints / f"{step:012d}"
    folder.mkdir(parents=True)
    (folder / "policy.npz").write_text(f"{content} {step}")
    (folder / "counters.json").write_text("{}")
    write_manifest(folder)
    return folder


def stored_in(bucket):
    return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())


def test_a_learner_on_another_machine_continues_from_the_newest_whole_checkpoint(tmp_path, bucket, storage):
    first = directory_of(tmp_path / "first", "learner/0")
    mirror = Mirror(storage, "learner/0", first)
    for step in (100, 200, 300):
        write_checkpoint(first, step)
        (first.checkpoints / "incarnation").write_text("0")
        (first.checkpoints / "draft-000000000400").mkdir(exist_ok=True)
        assert mirror.close()
    names = [
        f"checkpoints/{step:012d}/{name}"
        for step in (200, 300)
        for name in ("DONE", "counters.json", "manifest.json", "policy.npz")
    ]
    assert stored_in(bucket) == [*names, "checkpoints/incarnation", "logs/learner-0.log"]
    # A machine died while it stored this one.
    half = bucket / "checkpoints" / "000000000400"
    half.mkdir()
    (half / "policy.npz").write_text("half")

    second = directory_of(tmp_path / "second", "learner/0")
    Mirror(storage, "learner/0", second).fetch()
    (found,) = second.checkpoints.glob("0*")
    assert (found / "policy.npz").read_text() == "weights 300"
    assert (second.checkpoints / "incarnation").read_text() == "0"
    assert second.log("learner/0").read_text() == "begins\n"


def test_nodes_store_what_is_theirs_and_nothing_else(tmp_path, bucket, storage):
    owned = {
        "actor/1": ["logs/actor-1.log"],
        "coordinator/0": ["logs/coordinator-0.log", "metrics.jsonl", "tensorboard/events"],
        "evaluator/0": ["checkpoints/best.npz", "logs/evaluator-0.log"],
        "learner/1": ["logs/learner-1.log"],
        "replay/2": ["logs/replay-2.log", "replay/2/checkpoints/7/DONE", "replay/2/checkpoints/7/tables.tfrecord"],
    }
    for node, expected in owned.items():
        directory = directory_of(tmp_path, node)
        write_checkpoint(directory, 100)
        directory.best_policy.write_text("best")
        directory.metrics.write_text("{}\n")
        directory.tensorboard.mkdir()
        (directory.tensorboard / "events").write_text("events")
        for name in ("7", "draft-8"):
            folder = directory.replay(2) / "checkpoints" / name
            folder.mkdir(parents=True)
            (folder / "tables.tfrecord").write_text("items")
        (directory.replay(2) / "checkpoints" / "7" / "DONE").touch()
        before = stored_in(bucket)
        assert Mirror(storage, node, directory).close()
        assert sorted(set(stored_in(bucket)) - set(before)) == expected


def test_what_has_not_changed_is_not_stored_again(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    write_checkpoint(directory, 100)
    Mirror(storage, "learner/0", directory).close()
    later = directory_of(tmp_path / "later", "learner/0")
    mirror = Mirror(storage, "learner/0", later)
    mirror.fetch()
    before = {name: (bucket / name).stat().st_mtime_ns for name in stored_in(bucket)}
    with later.log("learner/0").open("a") as log:
        log.write("more\n")
    mirror.close()
    after = {name: (bucket / name).stat().st_mtime_ns for name in stored_in(bucket)}
    assert [name for name in after if after[name] != before.get(name)] == ["logs/learner-0.log"]
    assert (bucket / "logs" / "learner-0.log").read_text() == "begins\nmore\n"
    # The same step once more, with other counters: a new directory under the old name.
    folder = later.checkpoints / f"{100:012d}"
    folder.rename(later.checkpoints / "old")
    write_checkpoint(later, 100, "others")
    mirror.close()
    assert (bucket / "checkpoints" / folder.name / "policy.npz").read_text() == "others 100"


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damaging", [empty, pathlib.Path.unlink])
@pytest.mark.parametrize("name", ["counters.json", "manifest.json", "policy.npz"])
@pytest.mark.parametrize("only", [None, ["policy.npz"]])
def test_the_one_before_a_damaged_checkpoint_is_fetched(tmp_path, bucket, storage, name, damaging, only):
    directory = directory_of(tmp_path, "learner/0")
    mirror = Mirror(storage, "learner/0", directory)
    for step in (100, 200):
        write_checkpoint(directory, step)
        assert mirror.close()
    damaging(bucket / "checkpoints" / f"{200:012d}" / name)
    copy, said = RunDirectory(tmp_path / "copy"), []
    storage.fetch_newest("checkpoints", copy.path, only, said.append)
    (line,) = said
    assert line.startswith(f"{storage.url}/checkpoints/{200:012d} is damaged ({name} ") and "\n" not in line
    latest = Checkpoints(copy).latest()
    assert latest.name == f"{100:012d}" and (latest / "policy.npz").read_text() == "weights 100"
    kept = sorted(path.name for path in (bucket / "checkpoints").iterdir())
    assert kept == [f"{100:012d}", f"damaged-{200:012d}"]
    # Without one that is whole there is a word about it, too.
    empty(bucket / "checkpoints" / f"{100:012d}" / name)
    copy = RunDirectory(tmp_path / "another")
    storage.fetch_newest("checkpoints", copy.path, only, said.append)
    with pytest.raises(CallboardError, match="no checkpoint in .* can be used"):
        Checkpoints(copy).latest()


def test_a_run_is_copied_to_be_evaluated(tmp_path, bucket, storage):
    for node in ("learner/0", "evaluator/0"):
        directory = directory_of(tmp_path, node)
        write_checkpoint(directory, 100)
        directory.best_policy.write_text("best")
        directory.experiment.write_text("env: CartPole-v1")
        storage.store("experiment.yaml", directory.path)
        Mirror(storage, node, directory).close()
    with local_copy(storage.url) as copy:
        assert copy.best_policy.read_text() == "best"
        assert (copy.checkpoints / f"{100:012d}" / "policy.npz").read_text() == "weights 100"
        assert copy.experiment.exists()
        copy.videos.mkdir()
        (copy.videos / "best.mp4").write_text("frames")
    assert not copy.path.exists()
    assert (bucket / "videos" / "best.mp4").read_text() == "frames"


def test_the_checkpoint_of_a_step_is_copied(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    mirror = Mirror(storage, "learner/0", directory, keep=3)
    for step in (100, 200, 300, 400):
        write_checkpoint(directory, step)
    assert mirror.close()
    assert storage.steps() == [200, 300, 400]
    (directory.checkpoints / f"{200:012d}").rename(directory.checkpoints / f"{500:012d}")
    assert mirror.close()
    assert storage.steps() == [300, 400, 500]
    with local_copy(storage.url, "400") as copy:
        (checkpoint,) = copy.checkpoints.glob("0*")
        assert checkpoint.name == f"{400:012d}"
        assert not (checkpoint / "counters.json").exists()
    with local_copy(storage.url, "400", whole=True) as copy:
        assert (copy.checkpoints / f"{400:012d}" / "counters.json").exists()
    with pytest.raises(CallboardError, match="run has no checkpoint 100; choose from latest, 300, 400, 500"):
        with local_copy(storage.url, "100"):
            pass


def test_a_run_that_is_not_there_is_an_empty_copy(tmp_path, storage):
    directory = RunDirectory(tmp_path / "copy")
    fetch_run(storage, directory)
    assert not directory.path.exists()


def test_storage_that_fails_is_tried_again(tmp_path, bucket, storage, monkeypatch):
    monkeypatch.setattr("callboard.launch.run_directory.remote_storage._RETRY_SECONDS", 0.0)
    directory = directory_of(tmp_path, "learner/0")
    write_checkpoint(directory, 100)
    bucket.mkdir(parents=True)
    (bucket / "checkpoints").write_text("in the way")
    said = []
    mirror = Mirror(storage, "learner/0", directory, said.append)
    assert not mirror.close()
    # One line for all tries, and what could be stored is there.
    (line,) = said
    assert line.startswith(f"{storage.url} did not take what is new, and is tried again: ") and "\n" not in line
    assert stored_in(bucket) == ["checkpoints", "logs/learner-0.log"]
    (bucket / "checkpoints").unlink()
    assert mirror.close()
    assert f"checkpoints/{100:012d}/DONE" in stored_in(bucket)


def test_half_checkpoints_of_those_who_died_are_removed_and_newer_ones_left(tmp_path, bucket, storage):
    directory = directory_of(tmp_path, "learner/0")
    for step in (50, 150):
        half = bucket / "checkpoints" / f"{step:012d}"
        half.mkdir(parents=True)
        (half / "policy.npz").write_text("half")
    write_checkpoint(directory, 100)
    assert Mirror(storage, "learner/0", directory).close()
    assert sorted(path.name for path in (bucket / "checkpoints").iterdir()) == [f"{step:012d}" for step in (100, 150)]


def test_a_local_file_is_never_there_in_part(tmp_path, bucket, storage, monkeypatch):
    directory = directory_of(tmp_path, "actor/0")
    storage.store("logs/actor-0.log", directory.path)
    directory.log("actor/0").write_text("another one\n")
    replaced = []

    def replace(source, target):
        replaced.append((os.path.dirname(source) == os.path.dirname(target), pathlib.Path(target).read_text()))
        rename(source, target)

    rename = os.replace
    monkeypatch.setattr(os, "replace", replace)
    storage.store("logs/actor-0.log", directory.path)
    assert replaced == [(True, "begins\n")]
    assert (bucket / "logs" / "actor-0.log").read_text() == "another one\n"


def test_what_is_a_url():
    assert is_url("s3://bucket/run") and is_url("file:///runs/x")
    assert not is_url("runs/x") and not is_url(pathlib.Path("s3://bucket")) and not is_url(None)
    with pytest.raises(CallboardError, match="the run directory nowhere://x cannot be used: Protocol not known"):
        Storage("nowhere://x")


def test_directories_that_contain_a_file_are_found_at_any_depth(storage, bucket):
    for name in ("a/x.yaml", "b/c/x.yaml", "b/y.yaml"):
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).touch()
    assert sorted(storage.folders_with("x.yaml")) == ["a", "b/c"]
    (bucket / "x.yaml").touch()
    assert sorted(storage.folders_with("x.yaml")) == [".", "a", "b/c"]
    assert Storage(f"{storage.url}/nowhere").folders_with("x.yaml") == []
