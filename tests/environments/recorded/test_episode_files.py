"""The files of a data set: complete after every write, appended to, limited, and refused where they do not fit."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from dm_env import specs as dm_specs
from recorded_sets import CARTPOLE

from callboard.environments.recorded import EpisodeFiles, open_data
from callboard.environments.recorded.episode_columns import EpisodeColumns
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

minari = pytest.importorskip("minari")

SPEC = EnvironmentSpec(dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(9, np.int32))

WRITES_WITHOUT_ROOM = """
import importlib.util, pathlib, resource, sys
spec = importlib.util.spec_from_file_location("tests_of_files", {0!r})
module = importlib.util.module_from_spec(spec)
sys.path.insert(0, {0!r}.rpartition("/environments/")[0] + "/environments")
spec.loader.exec_module(module)
files = module.EpisodeFiles(pathlib.Path({1!r}), module.SPEC, {{}}, 1e9)
resource.setrlimit(resource.RLIMIT_FSIZE, ({2}, {2}))
for number in (20, 100, 1000):
    try:
        for _ in range(100):
            files.append([module.episode(2)] * number)
    except OSError:
        print("OSError")
"""


def episode(length, value=0.0):
    ends = np.arange(length) == length - 1
    return EpisodeColumns(
        {
            "observations": np.full((length + 1, 2), value, np.float32),
            "actions": np.zeros(length, np.int64),
            "rewards": np.full(length, value, np.float32),
            "terminations": ends,
            "truncations": ~ends & False,
        },
        length,
        None,
    )


def values(folder):
    return [int(one.rewards[0]) for one in minari.MinariDataset(str(folder / "data"))]


def test_a_data_set_is_readable_from_the_beginning_and_appended_to_by_later_writers(tmp_path):
    folder = tmp_path / "a-v0"
    EpisodeFiles(folder, SPEC, {"algorithm_name": "x"}, 1e9)
    assert values(folder) == []
    for first in (1, 3):
        files = EpisodeFiles(folder, SPEC, {}, 1e9)
        assert files.append([episode(2, first), episode(3, first + 1)])
    assert values(folder) == [1, 2, 3, 4]
    data = open_data(str(folder))
    assert (data.total_episodes, data.total_steps, data.metadata["algorithm_name"]) == (4, 10, "x")


def test_the_newest_number_of_each_source_is_known_also_to_another_writer(tmp_path):
    folder = tmp_path / "a-v0"
    EpisodeFiles(folder, SPEC, {}, 1e9).append([episode(1, 1)], {"actor": 1})
    again = EpisodeFiles(folder, SPEC, {}, 1e9)
    assert (again.last_number("actor"), again.last_number("other")) == (1, 0)
    assert again.append([episode(1, 2), episode(1, 3)], {"actor": 2, "other": 1})
    assert (again.last_number("actor"), again.last_number("other")) == (2, 1)
    assert values(folder) == [1, 2, 3]


@pytest.mark.parametrize("killed_before", ["main_data.hdf5", "metadata.json"])
def test_a_writer_that_is_killed_leaves_whole_episodes_that_the_next_one_counts(tmp_path, monkeypatch, killed_before):
    from callboard.files import atomic_files

    folder = tmp_path / "a-v0"
    files = EpisodeFiles(folder, SPEC, {}, 1e9)
    files.append([episode(2, 1)])
    replace = atomic_files.os.replace

    def killed(source, target):
        if str(target).endswith(killed_before):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(atomic_files.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        files.append([episode(3, 2)], {"actor": 1})
    assert values(folder) == [1]
    monkeypatch.undo()
    files = EpisodeFiles(folder, SPEC, {}, 1e9)
    # The actor repeats its call, since it got no answer; it was linked if the writer was killed after that.
    assert files.last_number("actor") == (killed_before == "metadata.json")
    if not files.last_number("actor"):
        files.append([episode(3, 2)], {"actor": 1})
    assert values(folder) == [1, 2]
    assert open_data(str(folder)).total_steps == 5


@pytest.mark.parametrize("failed_at", [1, 2, 3, 4])
def test_a_writer_whose_write_fails_knows_what_was_added(tmp_path, monkeypatch, failed_at):
    from callboard.environments.recorded import episode_files

    folder = tmp_path / "a-v0"
    files = EpisodeFiles(folder, SPEC, {}, 1e9)
    files.append([episode(2, 1)])
    sync, calls = episode_files.sync, []

    def full(path):
        calls.append(path)
        if len(calls) == failed_at:
            raise OSError("no space left")
        sync(path)

    monkeypatch.setattr(episode_files, "sync", full)
    with pytest.raises(OSError, match="no space left"):
        files.append([episode(3, 2), episode(1, 3)], {"actor": 1})
    # The links were replaced before the fourth, of their folder.
    assert files.last_number("actor") == (failed_at == 4)
    assert values(folder) == ([1, 2, 3] if failed_at == 4 else [1])
    if failed_at < 4:
        files.append([episode(3, 2), episode(1, 3)], {"actor": 1})
    files.append([episode(1, 4)], {"actor": 2})
    assert values(folder) == [1, 2, 3, 4]
    assert open_data(str(folder)).total_steps == 7


def test_a_data_set_in_the_older_format_of_hdf5_is_continued(tmp_path, monkeypatch):
    from callboard.environments.recorded import hdf5_episodes

    with monkeypatch.context() as older:
        older.setattr(hdf5_episodes, "_FORMAT", "earliest")
        EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9).append([episode(2, 1)], {"actor": 1})
    files = EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)
    assert files.last_number("actor") == 1
    files.append([episode(2, 2)])
    assert values(tmp_path / "a-v0") == [1, 2]


def test_nothing_is_written_beyond_the_limit(tmp_path):
    files = EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1)
    assert not files.append([episode(2)])
    assert files.total_episodes == 0


def test_large_data_is_divided_into_parts(tmp_path, monkeypatch):
    from callboard.environments.recorded import episode_files

    monkeypatch.setattr(episode_files, "_PART_BYTES", 1)
    files = EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)
    for value in (1, 2, 3):
        files.append([episode(1, value)])
    assert len(list((tmp_path / "a-v0" / "data" / "parts").iterdir())) == 3
    assert values(tmp_path / "a-v0") == [1, 2, 3]


def test_another_environment_and_a_name_without_a_version_are_refused(tmp_path):
    EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)
    other = SPEC._replace(action=dm_specs.DiscreteArray(3, np.int32))
    with pytest.raises(CallboardError, match="another action space; record to another folder"):
        EpisodeFiles(tmp_path / "a-v0", other, {}, 1e9)
    for name, plain in (("a", "a-v0"), ("x y-v1", "x-y-v0"), ("größe", "größe-v0"), ("-v0", "episodes-v0")):
        with pytest.raises(CallboardError, match=f"ends with a version, as in {plain}$"):
            EpisodeFiles(tmp_path / name, SPEC, {}, 1e9)
    (tmp_path / "a-v0" / "data" / "metadata.json").write_text("{")
    with pytest.raises(CallboardError, match="is damaged"):
        EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)


def test_images_that_no_picture_can_hold_are_refused(tmp_path):
    spec = SPEC._replace(observation=dm_specs.BoundedArray((40, 40, 5), np.uint8, 0, 255))
    with pytest.raises(CallboardError, match="1, 3 or 4 channels"):
        EpisodeFiles(tmp_path / "a-v0", spec, {}, 1e9)


@pytest.mark.parametrize("name", ["", ".", "a\0b", "\ud800"])
@pytest.mark.parametrize("place", ["observation", "action"])
def test_names_that_no_file_can_hold_are_refused_before_anything_is_written(name, place, tmp_path):
    parts = {"arm": {name: dm_specs.Array((2,), np.float32)}}
    with pytest.raises(CallboardError, match=f"of {place}/arm cannot be recorded") as caught:
        EpisodeFiles(tmp_path / "a-v0", SPEC._replace(**{place: parts}), {}, 1e9)
    assert repr(name) in str(caught.value) and not (tmp_path / "a-v0").exists()


@pytest.mark.parametrize("names", [("a/b", "a.b"), (1, "1")])
def test_parts_with_the_same_name_in_a_file_are_refused(names, tmp_path):
    parts = {name: dm_specs.Array((2,), np.float32) for name in names}
    with pytest.raises(CallboardError, match="files call both"):
        EpisodeFiles(tmp_path / "a-v0", SPEC._replace(observation=parts), {}, 1e9)


def test_parts_with_other_odd_names_are_read_as_they_were_written(tmp_path):
    names = [
        *("größe", "日本語", "a b", "..", "A", "a", "_index_0", "'\"`$", "\n\t", "\x1b[2J", "x" * 300, "id", "infos")
    ]
    spec = EnvironmentSpec(*({name: dm_specs.Array((2,), np.float32) for name in names} for _ in range(2)))
    columns = {name: value for name, value in episode(3).values.items() if name not in ("observations", "actions")}
    for number, name in enumerate(names):
        columns[f"observations/{name}"] = np.full((4, 2), number, np.float32)
        columns[f"actions/{name}"] = np.full((3, 2), -number, np.float32)
    EpisodeFiles(tmp_path / "a-v0", spec, {}, 1e9).append([EpisodeColumns(columns, 3, None)])
    (found,) = open_data(str(tmp_path / "a-v0")).all_episodes()
    for number, name in enumerate(names):
        assert (found.observation[name] == number).all() and (found.action[name] == -number).all(), name


def test_a_reader_is_never_refused_while_episodes_are_written(tmp_path, monkeypatch):
    from callboard.environments.recorded import episode_files

    files = EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)
    files.append([episode(1, 1)])
    seen, replace = [], episode_files.os.replace

    def replaced(source, target):
        replace(source, target)
        seen.append(values(tmp_path / "a-v0"))

    monkeypatch.setattr(episode_files.os, "replace", replaced)
    files.append([episode(1, 2)])
    assert seen == [[1], [1], [1, 2]]


WRITER = """
import pathlib, sys, time
from recorded_sets import CARTPOLE, cartpole_episode, columns
from callboard.environments.batches.encoding import encoding_of
from callboard.environments.recorded import EpisodeFiles
files = EpisodeFiles(pathlib.Path(sys.argv[1]), CARTPOLE, {}, 1e9)
files.append([columns(encoding_of(CARTPOLE), **cartpole_episode(1, 3))])
print("written", flush=True)
time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_one_has_ended_however_it_ends(tmp_path):
    folder = tmp_path / "a-v0"
    path = os.pathsep.join(sys.path)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "written\n"
        with pytest.raises(CallboardError, match="another process writes to the data set .*a-v0: wait until"):
            EpisodeFiles(folder, CARTPOLE, {}, 1e9)
        assert open_data(str(folder)).total_episodes == 1
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    files = EpisodeFiles(folder, CARTPOLE, {}, 1e9)
    assert files.total_episodes == 1


def test_the_newest_writer_of_a_process_is_the_one_that_writes(tmp_path):
    earlier = EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)
    later = EpisodeFiles(tmp_path / "a-v0", SPEC, {}, 1e9)
    with pytest.raises(CallboardError, match="is closed, or written to by a later writer"):
        earlier.append([episode(1)])
    assert later.append([episode(1)])
    later.close()
    with pytest.raises(CallboardError, match="is closed"):
        later.append([episode(1)])


@pytest.mark.parametrize("name", ["", "parts", "lock", "main_data.hdf5", "metadata.json"])
def test_nothing_is_written_or_read_through_a_link(tmp_path, name):
    folder = tmp_path / "a-v0"
    EpisodeFiles(folder, SPEC, {}, 1e9).append([episode(1)])
    part = folder / "data" / name
    part.rename(tmp_path / "moved")
    part.symlink_to(tmp_path / "moved")
    before = {file: file.read_bytes() for file in (tmp_path / "moved").rglob("*") if file.is_file()}
    with pytest.raises((CallboardError, OSError), match="symbolic link|is damaged"):
        EpisodeFiles(folder, SPEC, {}, 1e9).append([episode(2)])
    assert {file: file.read_bytes() for file in (tmp_path / "moved").rglob("*") if file.is_file()} == before


def test_a_disk_without_room_is_an_error_and_no_crash(tmp_path):
    folder = tmp_path / "a-v0"
    assert EpisodeFiles(folder, SPEC, {}, 1e9).append([episode(50, 1)])
    command = [sys.executable, "-c", WRITES_WITHOUT_ROOM.format(__file__, str(folder), 400_000)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["OSError"] * 3), done.stderr
    assert values(folder)[:2] == [1, 0]
    assert not list(folder.rglob("draft-*"))
