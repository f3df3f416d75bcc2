"""Files that others may have prepared: only regular ones are opened, and their JSON is what the standard says."""

import gc
import os
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

from callboard.files.guarded_files import (
    open_regular,
    parse_json,
    read_arrays,
    read_json,
    read_json_lines,
    read_regular,
    regular_lines,
    write_arrays,
)


def make_link(path):
    path.with_name("victim").write_text("precious")
    path.symlink_to(path.with_name("victim"))


def make_device(path):
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize(
    "make, problem",
    [
        (make_link, "file is a symbolic link"),
        (os.mkfifo, "file is no regular file"),
        (os.mkdir, "file is no regular file"),
        (make_device, "file is no regular file"),
    ],
)
def test_nothing_but_a_regular_file_is_opened(make, problem, tmp_path):
    path = tmp_path / "file"
    make(path)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC):
        with pytest.raises(OSError) as refused:
            open_regular(path, flags)
        if flags == os.O_RDONLY or make is not os.mkdir:
            assert refused.value.strerror == problem
    if make is make_link:
        assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_over_the_bound_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="file has more than 4 bytes"):
        read_regular(path, 4)
    os.truncate(path, 2**40)
    with pytest.raises(OSError, match="file has more than 67,108,864 bytes"):
        read_json(path)


@pytest.mark.parametrize(
    "text", ["NaN", "[-Infinity]", "1e400", '{"a": -1e999}', "9" * 400, "[" * 200_000, "{", "", "\xff", "1 2"]
)
def test_what_is_no_json_is_refused(text):
    for content in (text, text.encode("latin-1")):
        with pytest.raises(ValueError):
            parse_json(content)


def test_what_the_standard_allows_is_read():
    assert parse_json('{"a": [1.5e300, -0, 18446744073709551615, null, true, "\u00e9"]}') == {
        "a": [1.5e300, 0, 2**64 - 1, None, True, "é"]
    }


def test_lines_are_read_up_to_a_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"1\n\n22\nbeing written")
    assert list(regular_lines(path)) == [b"1", b"", b"22"]
    with pytest.raises(OSError, match="file has more than 3 bytes"):
        list(regular_lines(path, 3))
    path.write_bytes(b"1\n" + b"2" * (2**20 + 1) + b"\n3\n")
    with pytest.raises(OSError, match="file has a line of more than 1,048,576 bytes"):
        list(regular_lines(path))


def test_a_line_without_an_end_takes_no_memory(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"1\n")
    os.truncate(path, 2**36)
    tracemalloc.start()
    for read in (read_regular, lambda path: list(regular_lines(path)), lambda path: list(regular_lines(path, 2**40))):
        with pytest.raises(OSError, match="more than"):
            read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23


def test_json_lines_name_the_line_that_is_wrong(tmp_path):
    path = tmp_path / "file"
    path.write_text('{"a": 1}\n[2]\nNaN\n')
    rows = read_json_lines(path)
    assert next(rows) == {"a": 1} and next(rows) == [2]
    with pytest.raises(ValueError, match="^line 3: NaN is no number"):
        next(rows)


def test_arrays_that_cannot_be_written_are_an_error_and_print_nothing(tmp_path, monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    path = tmp_path / "file.npz"
    write_arrays(path, a=np.arange(3))
    assert read_arrays(path)["a"].tolist() == [0, 1, 2]
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_arrays(path, a=np.arange(3))
    gc.collect()
    assert not ignored


def test_arrays_are_plain_and_have_bytes_of_their_own(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, a=np.arange(1000), b=np.float32(2.0))
    assert read_arrays(path)["a"].sum() == 499500 and read_arrays(path)["b"] == 2.0
    # Several entries of the directory at the end of the file name one array.
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.infolist()[0]
        for _ in range(50):
            archive.filelist.append(first)
        archive._didModify = True
    with pytest.raises(ValueError, match="more bytes than the file"):
        read_arrays(path)
    np.savez(path, a=np.array([{}], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_arrays(path)
    np.savez_compressed(path, a=np.zeros(2**20))
    with pytest.raises(ValueError, match="compressed"):
        read_arrays(path)
    np.savez(path, a=np.zeros(10, "V0"))
    with pytest.raises(ValueError, match="elements without bytes"):
        read_arrays(path)


def test_a_file_of_arrays_has_a_limited_size_however_little_of_it_is_on_disk(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, a=np.zeros(3))
    os.truncate(path, 2**31 + 1)
    with pytest.raises(OSError, match="file.npz has more than 2,147,483,648 bytes"):
        read_arrays(path)
