"""Errors by which a node may end: faults, after which it is started again, and those of code, which would repeat."""

import re
import traceback

_FAULTS = re.compile(
    "Connection|Timeout|TimedOut|Unavailable|Unreachable|StatusNotOk|ResourceExhausted|Aborted|Cancelled|Internal"
    "|DeadlineExceeded|Memory|EOFError|Rpc|Reverb"
)
"""In the names of exceptions of a connection or of resources, in the libraries that nodes and environments use."""
_MISTAKES = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
_GENERATED = "__autograph_generated_file"


def is_fault(error: BaseException) -> bool:
    """Returns whether an error, or what it follows from, is one of a connection or of resources."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        names = " ".join(kind.__name__ for kind in type(following).__mro__)
        if _FAULTS.search(names) or (isinstance(following, OSError) and not isinstance(following, _MISTAKES)):
            return True
        following = following.__cause__ or following.__context__
    return False


def error_place(error: BaseException) -> str:
    """Returns a text that is the same for errors of one kind that were raised at one place."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames if _GENERATED not in frame.filename]
    return " ".join([type(error).__qualname__, *places])
