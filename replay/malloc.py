"""How the C library keeps the memory of a process that does nothing but serve replay."""

import ctypes

_M_ARENA_MAX = -8
"""Of `mallopt`, in the GNU C library's `malloc.h`."""


def use_one_arena() -> None:
    """Lets all threads of this process take memory from one heap; does nothing where the C library cannot.

    Otherwise threads have heaps of their own, and what one of them frees another cannot use: a server's threads hand on
    all that they receive.  For a process of a server's own, before it has threads.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, OSError):
        pass  # Another C library, which keeps its memory in ways of its own.
