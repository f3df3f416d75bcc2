"""An environment that prints on stdout, as simulators do."""

import ctypes
import os
import sys

import own_callbacks


class PrintingWalk(own_callbacks.Walk):
    """Prints at each reset."""

    def reset(self, **arguments):
        print("printed by Python")
        sys.__stdout__.write("printed by Python past sys.stdout\n")
        ctypes.CDLL(None).printf(b"printed by C\n")
        os.write(1, b"printed by a system call\n")
        return super().reset(**arguments)
