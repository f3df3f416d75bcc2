"""Arenas from which the threads of a process allocate memory."""

import subprocess
import sys

import pytest

from callboard.launch.launchers.node_processes import malloc_arenas

# Without the package, whose imports start threads.
SCRIPT = """
import ctypes, importlib.util, sys, threading
spec = importlib.util.spec_from_file_location("malloc", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if sys.argv[2] == "one":
    module.use_one_arena()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fopen.restype = ctypes.c_void_p
barrier = threading.Barrier(4)
def take():
    barrier.wait()
    libc.malloc(10_000)
    barrier.wait()
threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
"""


def heaps(arenas):
    command = [sys.executable, "-c", SCRIPT, malloc_arenas.__file__, arenas]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.count("<heap nr=")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library")
def test_all_threads_share_one_heap():
    assert heaps("many") > 1
    assert heaps("one") == 1
