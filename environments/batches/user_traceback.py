"""The part of a traceback that is a user's own: without the frames of Callboard and of the libraries around it."""

import pathlib
import re
import sysconfig
import traceback
from collections.abc import Sequence

_PACKAGE = str(pathlib.Path(__file__).resolve().parents[2])
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_LIBRARIES = ("gymnasium", "dm_env", "pettingzoo", "importlib", "runpy.py", "contextlib.py")


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the frames of an exception, from the first one of the user's on; all if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    for index, frame in enumerate(frames):
        if not _is_ours(frame.filename):
            return frames[index:]
    return list(frames)


def user_traceback(error: BaseException) -> str:
    """Returns these frames and the exception, as Python shows them."""
    lines = traceback.format_list(user_frames(error)) + traceback.format_exception_only(type(error), error)
    return "Traceback (most recent call last):\n" + "".join(lines).rstrip()


def waiting_place(lines: Sequence[str]) -> str:
    """Returns the innermost place in a user's own file, of a thread whose frames `faulthandler` printed; else empty."""
    for line in lines:
        found = re.fullmatch(r'  File "(.+)", line (\d+) in .*', line)
        if found and not (_is_ours(found[1]) or found[1].startswith(_INSTALLED)):
            return f"{pathlib.Path(found[1]).name}, line {found[2]}"
    return ""


def _is_ours(filename: str) -> bool:
    path = pathlib.Path(filename)
    if filename.startswith("<frozen") or str(path.resolve()).startswith(
        (f"{_PACKAGE}/environments/", f"{_PACKAGE}/named_")
    ):
        return True
    return any(part in _LIBRARIES for part in path.parts)
