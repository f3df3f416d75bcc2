"""What is called at the end of a program, and when."""

import subprocess
import sys

PROGRAM = """
import atexit
import threading

from callboard.launch.processes.exit_calls import call_at_exit, remove_call

atexit.register(lambda: print("others"))
threading._register_atexit(lambda: print("waits"))


class Opened:
    def __init__(self, name):
        self.name = name

    def close(self):
        print("closes", self.name)
        remove_call(self.close)


closed, left, in_thread = Opened("closed"), Opened("left"), Opened("of a thread")
for opened in (closed, left):
    call_at_exit(opened.close)
thread = threading.Thread(target=call_at_exit, args=(in_thread.close,))
thread.start()
thread.join()
closed.close()
print("ends")
"""


def test_what_is_left_open_is_closed_before_others_are_waited_for():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == [
        "closes closed",
        "ends",
        "closes left",
        "waits",
        "closes of a thread",
        "others",
    ], ended.stderr
