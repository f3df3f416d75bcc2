"""Memory allocator settings for a process that only serves replay."""

import ctypes

_M_ARENA_MAX = -8
"""Parameter of `mallopt`, from the GNU C library's `malloc.h`."""


def use_one_arena() -> None:
    """Makes all threads of this process allocate from one arena; does nothing if the C library does not support it.

    By default threads have separate arenas, and memory that one thread frees cannot be reused by another; the threads
    of a replay server pass on all data that they receive.  Call this in a process that only runs a server, before it
    starts threads.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, OSError):
        pass  # Another C library with a different allocator.
