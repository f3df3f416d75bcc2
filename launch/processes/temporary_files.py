"""Temporary files that are removed when the process that needs them ends, even if it is killed."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from .stop_signals import STOP_SIGNALS

_START_BYTES = 2**20
"""Bytes that a node needs at its start: settings, markers, and the code that TensorFlow generates."""

# Waits for a line, after which nothing is left to do, or for the end of the pipe.  Repeats, because processes that end
# at the same time may still write.  Kills processes that match $2 and have open files in the directory.
_REMOVE = """\
trap '' INT TERM HUP
read -r line && exit
for attempt in 1 2 3 4 5 6; do
  if [ -n "$2" ]; then
    for file in $(find /proc/[0-9]*/fd -lname "$1/*" 2>/dev/null); do
      process=${file%/fd/*}
      if tr '\\0' ' ' 2>/dev/null <"$process/cmdline" | grep -Eq -- "$2"; then kill -9 "${process#/proc/}"; fi
    done
  fi
  rm -rf -- "$1"; sleep 1; [ -e "$1" ] || exit
done
"""


@contextlib.contextmanager
def temporary_files_in(directory: pathlib.Path) -> Iterator[None]:
    """Makes a directory the place of temporary files, such as AutoGraph's, within the context."""
    directory.mkdir(mode=0o700, exist_ok=True)
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def has_space(directory: str | os.PathLike[str]) -> bool:
    """Returns whether the disk of a directory has room for the files that a node writes when it starts."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, _START_BYTES)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)
    return True


@contextlib.contextmanager
def removed_afterwards(directory: pathlib.Path, held: Sequence[int] = (), processes: str = "") -> Iterator[None]:
    """Removes a directory at the end, even if this process is killed: a small process outlives it and removes it.

    Args:
      directory: the directory, which need not exist.
      held: file descriptors, such as that of a lock, to keep open until the directory is removed.
      processes: a regular expression; if this process is killed, so are processes with a matching command line and open
        files in the directory.
    """
    end = _start_remover(directory, held, processes)
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if end is not None:
            process, pipe = end
            with contextlib.suppress(OSError):
                os.write(pipe, b"done\n")
            os.close(pipe)
            process.wait()


def _start_remover(
    directory: pathlib.Path, held: Sequence[int], processes: str
) -> tuple[subprocess.Popen[bytes], int] | None:
    reader, writer = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        process = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE, "callboard-remove", str(directory), processes],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=held,
            start_new_session=True,
        )
        return process, writer
    except OSError:
        # Without a shell, the files of a killed process remain until the next start.
        os.close(writer)
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reader)
