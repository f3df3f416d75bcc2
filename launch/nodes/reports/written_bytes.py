"""Progress of writing files: as long as the files grow, the node does not hang, however slow the disk is."""

import contextlib
import pathlib
import threading
from collections.abc import Iterator

from ..progress import Progress

_SECONDS = 1.0


@contextlib.contextmanager
def marked_while_files_grow(
    progress: Progress, directory: pathlib.Path, activity: str, seconds: float = _SECONDS
) -> Iterator[None]:
    """Marks progress whenever the total size of the files in a directory has changed, within the context.

    Args:
      progress: progress of the node that writes the files.
      directory: the directory, including its subdirectories.
      activity: what the node is doing.
      seconds: interval between checks.
    """
    done = threading.Event()

    def look(before: int) -> None:
        while not done.wait(seconds):
            now = bytes_in(directory)
            if now != before:
                progress.works_slowly(activity)
            before = now

    progress.works_slowly(activity)
    thread = threading.Thread(target=look, args=(bytes_in(directory),), name="written-bytes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def bytes_in(directory: pathlib.Path) -> int:
    """Returns the total size of all files in a directory; of a directory that is being renamed, of some."""
    total = 0
    with contextlib.suppress(OSError):  # `rglob` fails if a directory is renamed or removed in the meantime.
        for path in directory.rglob("*"):
            with contextlib.suppress(OSError):  # So may files be.
                total += path.stat().st_size
    return total
