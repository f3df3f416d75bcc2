"""What the forkserver imports for all nodes."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading
import callboard.launch.preload
from tensorflow.python.eager import context
print(threading.active_count(), context.context()._initialized)
before = {name.partition(".")[0] for name in sys.modules}
import callboard.launch.launchers.node_processes.node_process
print(sorted({name.partition(".")[0] for name in sys.modules} - before))
print(sorted({"courier", "gymnasium", "keras", "launchpad", "reverb", "tensorflow"} & before))
print("callboard.launch.program" in sys.modules)
"""


@pytest.mark.slow
def test_nodes_find_their_packages_imported_and_neither_threads_nor_devices_in_use():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    threads, added, found, has_program = done.stdout.splitlines()[-4:]
    assert threads == "1 False"
    assert added == "[]"
    assert found == str(["courier", "gymnasium", "keras", "launchpad", "reverb", "tensorflow"])
    assert has_program == "True"
