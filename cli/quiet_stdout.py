"""Keeps what environments print out of a command's results on stdout."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends to stderr what is printed meanwhile, by Python, by libraries in C and by processes that are started."""
    printed, stdout = sys.stdout, os.dup(1)
    printed.flush()
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        printed.flush()  # An environment may have kept it.
        ctypes.CDLL(None).fflush(None)  # What C has printed is in its buffer, unless stdout is a terminal.
        os.dup2(stdout, 1)
        os.close(stdout)
