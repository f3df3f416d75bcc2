"""What nodes store at a URL, and what they fetch from there."""

from stored_nodes import directory_of, stored_in, write_checkpoint

from callboard.launch.run_directory.node_mirror import Mirror


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
        for name in ("DONE", "counters.json", "learner.index", "manifest.json", "policy.npz")
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


def test_storage_that_fails_is_tried_again(tmp_path, bucket, storage, monkeypatch):
    monkeypatch.setattr("callboard.launch.run_directory.node_mirror._RETRY_SECONDS", 0.0)
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


def test_nodes_of_a_policy_store_what_is_theirs_below_its_directory(tmp_path, bucket, storage):
    owned = {
        "learner/red/0": ["checkpoints/000000000100/", "checkpoints/incarnation", "snapshots/past-3.npz"],
        "learner/red/1": [],
        "replay/red/2": ["replay/2/checkpoints/7/"],
    }
    for node, expected in owned.items():
        whole = directory_of(tmp_path, node)
        for name in ("red", "blue"):
            of_policy = whole.of_policy(name)
            of_policy.path.mkdir(parents=True)
            write_checkpoint(of_policy, 100)
            (of_policy.checkpoints / "incarnation").write_text("0")
            of_policy.snapshots.mkdir()
            of_policy.snapshot("past", 3).write_text("weights")
            folder = of_policy.replay(2) / "checkpoints" / "7"
            folder.mkdir(parents=True)
            (folder / "tables.tfrecord").write_text("items")
        before = stored_in(bucket)
        assert Mirror(storage, node, whole).close()
        new = sorted(set(stored_in(bucket)) - set(before))
        assert f"logs/{node.replace('/', '-')}.log" in new
        of_node = [name.removeprefix("policies/red/") for name in new if not name.startswith("logs/")]
        assert all(name.startswith(tuple(expected)) for name in of_node) and len(of_node) >= len(expected)


def test_the_evaluator_and_the_coordinator_store_for_all_policies(tmp_path, bucket, storage):
    whole = directory_of(tmp_path, "evaluator/0")
    for name in ("red", "blue"):
        best = whole.of_policy(name).best_policy
        best.parent.mkdir(parents=True)
        best.write_text(name)
        experiment = whole.of_policy(name).experiment
        experiment.write_text("env: X\n")
        storage.store(str(experiment.relative_to(whole.path)), whole.path)
    whole.ratings.write_text("{}")
    assert Mirror(storage, "evaluator/0", whole).close() and Mirror(storage, "coordinator/0", whole).close()
    assert {"policies/red/checkpoints/best.npz", "policies/blue/checkpoints/best.npz", "ratings.json"} <= set(
        stored_in(bucket)
    )
    later = directory_of(tmp_path / "later", "evaluator/0")
    Mirror(storage, "evaluator/0", later).fetch()
    Mirror(storage, "coordinator/0", later).fetch()
    assert later.of_policy("blue").best_policy.read_text() == "blue" and later.ratings.exists()


def test_a_learner_of_a_policy_continues_with_its_checkpoint_and_snapshots(tmp_path, bucket, storage):
    whole = directory_of(tmp_path / "first", "learner/red/0")
    red = whole.of_policy("red")
    red.path.mkdir(parents=True)
    red.snapshots.mkdir()
    write_checkpoint(red, 100)
    red.snapshot("past", 0).write_text("old")
    mirror = Mirror(storage, "learner/red/0", whole)
    assert mirror.close()
    # The learner keeps only the newest.
    red.snapshot("past", 0).unlink()
    red.snapshot("past", 1).write_text("new")
    assert mirror.close()
    later = directory_of(tmp_path / "later", "learner/red/0")
    Mirror(storage, "learner/red/0", later).fetch()
    found = later.of_policy("red")
    assert [path.name for path in found.checkpoints.glob("0*")] == [f"{100:012d}"]
    assert found.snapshots_of("past")[1].read_text() == "new"
    assert list(found.snapshots_of("past")) == [1]
