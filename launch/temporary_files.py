"""Temporary files that are gone when the process that needs them is, however it ends."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from .stop_signals import STOP_SIGNALS

# Waits for a line, which says that nothing is left to do, or for the end of the pipe.  Processes that end at the same
# time may write a little longer.  Of those that match $2, the ones with open files in the directory are killed.
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
    """Keeps temporary files, such as AutoGraph's, in a directory while it lasts."""
    directory.mkdir(parents=True, exist_ok=True)
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def removed_afterwards(directory: pathlib.Path, held: Sequence[int] = (), processes: str = "") -> Iterator[None]:
    """Removes a directory at the end, also where this process is killed: a small process that outlives it sees to it.

    Args:
      directory: need not be there.
      held: file descriptors, such as that of a lock, that stay open until it is removed.
      processes: a regular expression; where this process is killed, so are those that have open files in the directory
        and a command line that matches.
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
        # Without a shell, what is left of a process that was killed lies there until the next start.
        os.close(writer)
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reader)
