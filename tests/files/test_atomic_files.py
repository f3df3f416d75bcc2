"""Files that are written whole or not at all, also if others write at the same time, or the writer dies."""

import os
import pathlib
import stat
import subprocess
import sys
import threading

import pytest

from callboard.files import atomic_files
from callboard.files.atomic_files import (
    directory_draft,
    file_draft,
    make_as_open,
    remove_directory,
    remove_drafts,
    set_aside,
    write_file,
)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_many_threads_replace_one_file(tmp_path):
    path, errors = tmp_path / "file", []

    def write(number):
        try:
            for _ in range(20):
                write_file(path, str(number) * 1000)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and names(tmp_path) == ["file"]
    assert len(set(path.read_text())) == 1 and len(path.read_text()) == 1000


def test_a_draft_that_links_to_the_same_file_does_not_stay(tmp_path):
    path, draft_of = tmp_path / "file", tmp_path / "link"
    write_file(path, "content")
    for _ in range(2):
        with file_draft(draft_of) as draft:
            draft.unlink()
            os.link(path, draft)
    assert names(tmp_path) == ["file", "link"]


@pytest.mark.parametrize("operation", ["os.fsync", "os.replace"])
def test_a_write_that_fails_leaves_what_was_there_and_no_draft(tmp_path, monkeypatch, operation):
    path = tmp_path / "file"
    write_file(path, "before")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(operation, fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, "after")
    with pytest.raises(OSError, match="No space left"), directory_draft(tmp_path / "folder") as draft:
        (draft / "inner").write_text("after")
    assert names(tmp_path) == ["file"] and path.read_text() == "before"


def test_a_directory_appears_whole(tmp_path):
    with directory_draft(tmp_path / "folder") as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "file").write_text("text")
        assert not (tmp_path / "folder").exists()
    assert names(tmp_path) == ["folder"] and (tmp_path / "folder" / "inner" / "file").read_text() == "text"


def test_drafts_are_removed_once_their_writer_has_ended(tmp_path):
    program = (
        "import os, pathlib, sys; from callboard.files.atomic_files import directory_draft, file_draft\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "with file_draft(path / 'file'), directory_draft(path / 'folder') as draft:\n"
        "    (draft / 'inner').write_text('half')\n"
        "    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert len(names(tmp_path)) == 2
    with file_draft(tmp_path / "other") as used:
        remove_drafts(tmp_path)
        assert names(tmp_path) == [used.name]
    assert names(tmp_path) == ["other"]


def test_a_draft_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    taken, flock = [], atomic_files.fcntl.flock

    def remove_first(descriptor, operation):
        if not taken:
            taken.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            os.unlink(taken[0])
        flock(descriptor, operation)

    monkeypatch.setattr(atomic_files.fcntl, "flock", remove_first)
    with file_draft(tmp_path / "file") as draft:
        assert str(draft) != taken[0] and draft.exists()


def test_a_directory_is_never_seen_half_removed(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    seen = []
    monkeypatch.setattr("shutil.rmtree", lambda path, **options: seen.append((folder.exists(), pathlib.Path(path))))
    remove_directory(folder)
    ((under_its_name, path),) = seen
    assert not under_its_name and path.name.startswith("draft-")
    remove_directory(folder)


def test_what_is_set_aside_replaces_nothing(tmp_path):
    for content in ("one", "two"):
        (tmp_path / "file").write_text(content)
        set_aside(tmp_path / "file")
    assert names(tmp_path) == ["damaged-file", "damaged-file.2"]
    assert set_aside(tmp_path / "file") is None


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_directory_is_not_more_open_than_the_one_that_holds_it(tmp_path, mode):
    before = os.umask(0)
    try:
        tmp_path.chmod(mode)
        make_as_open(tmp_path / "a" / "b")
        with directory_draft(tmp_path / "c") as draft:
            (draft / "file").touch()
    finally:
        os.umask(before)
    for path in ("a", "a/b", "c"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode


def test_a_directory_that_is_not_written_leaves_none_above_it(tmp_path):
    path = tmp_path / "folder" / "inner" / "target"
    atomic_files.check_writable(path, directory=True)
    assert not names(tmp_path)
    with pytest.raises(RuntimeError), directory_draft(path):
        raise RuntimeError
    assert not names(tmp_path)
    (tmp_path / "folder").mkdir()
    atomic_files.check_writable(path, directory=True)
    assert names(tmp_path) == ["folder"]
    with directory_draft(path):
        pass
    assert names(path.parent) == ["target"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_an_empty_directory_stays_a_link(tmp_path, exists):
    (tmp_path / "there").mkdir()
    if exists:
        (tmp_path / "there" / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/folder")
    atomic_files.check_writable(link, directory=True)
    with directory_draft(link) as draft:
        (draft / "file").touch()
    assert link.is_symlink() and names(tmp_path / "there" / "folder") == ["file"]
    assert names(tmp_path) == ["link", "there"] and names(tmp_path / "there") == ["folder"]


def test_an_empty_directory_keeps_its_permissions(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "private").mkdir(0o700)
    with directory_draft(tmp_path / "private") as draft:
        assert stat.S_IMODE(draft.stat().st_mode) == 0o700
        (draft / "file").touch()
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700


def test_the_working_directory_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "here"
    path.mkdir()
    monkeypatch.chdir(path)
    with pytest.raises(OSError, match="it is the working directory"):
        atomic_files.check_writable(path, directory=True)
    with pytest.raises(OSError, match="it is the working directory"), directory_draft(path):
        pass
    assert names(tmp_path) == ["here"] and path.samefile(".")
