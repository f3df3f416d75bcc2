"""Videos appear complete, or one line says why they cannot be written."""

import numpy as np
import pytest

from callboard.errors import CallboardError
from callboard.launch.pictures.video_files import check_video_file, video_file

FRAME = np.zeros((16, 16, 3), np.uint8)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.mp4").mkdir()
    return tmp_path


@pytest.mark.parametrize("place", ["file/x.mp4", "folder.mp4", "missing/folder/x.mp4", "/proc/x.mp4", "/dev/full"])
def test_a_place_that_cannot_be_written_is_refused_before_the_first_frame(folder, place):
    before = sorted(folder.rglob("*"))
    with pytest.raises(CallboardError, match=rf"{place} cannot be written: [^\n]*; name another place$"):
        with video_file(folder / place, 30.0):
            pytest.fail("it was made")
    with pytest.raises(CallboardError, match=rf"{place} cannot be written: [^\n]*; name another place$"):
        check_video_file(folder / place)
    assert sorted(folder.rglob("*")) == before


def test_nothing_stays_of_a_file_for_which_there_is_no_room(folder, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("callboard.files.atomic_files.sync", full)
    with pytest.raises(CallboardError, match="x.mp4 cannot be written: No space left on device; name another place"):
        with video_file(folder / "x.mp4", 30.0) as write:
            write(FRAME)
    assert sorted(path.name for path in folder.iterdir()) == ["file", "folder.mp4"]


def test_errors_of_what_draws_the_frames_are_passed_on(folder):
    with pytest.raises(FileNotFoundError, match="of the environment"):
        with video_file(folder / "x.mp4", 30.0) as write:
            write(FRAME)
            raise FileNotFoundError("of the environment")
    check_video_file(folder / "x.mp4")
    with video_file(folder / "x.mp4", 30.0) as write:
        write(FRAME)
    assert sorted(path.name for path in folder.iterdir()) == ["file", "folder.mp4", "x.mp4"]
