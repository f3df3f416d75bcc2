"""Settings of the memory allocator of a process."""

import ctypes

_M_ARENA_MAX = -8
"""Parameter of `mallopt`, from the GNU C library's `malloc.h`."""


def use_one_arena() -> None:
    """Makes all threads of this process allocate from one arena; does nothing if the C library does not support it.

    By default threads have separate arenas, and memory that one thread frees cannot be reused by another; the threads
    of a replay server pass on all data that they receive.  Call this before the process starts threads.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, OSError):
        pass  # Another C library with a different allocator.
