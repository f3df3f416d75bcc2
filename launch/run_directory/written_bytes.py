"""Progress of what writes files: as long as these grow, it does not hang, however slow the disk is."""

import contextlib
import pathlib
import threading
from collections.abc import Iterator

from ..nodes.progress import Progress

_SECONDS = 1.0


@contextlib.contextmanager
def marked_while_files_grow(
    progress: Progress, directory: pathlib.Path, activity: str, seconds: float = _SECONDS
) -> Iterator[None]:
    """Marks progress whenever the files in a directory have changed in size, while the block lasts.

    Args:
      progress: of the node that writes them.
      directory: the files are in it or in directories in it.
      activity: what the node is doing.
      seconds: between two looks.
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
    """The sizes of all files in a directory, together."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # Files are renamed and removed meanwhile.
            total += path.stat().st_size
    return total
