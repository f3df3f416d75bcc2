"""Files that others may have prepared: only regular ones are opened, and their JSON is what the standard says."""

import os

import pytest

from callboard.guarded_files import open_regular, parse_json, read_json, read_regular


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
