"""Where another interpreter looks for Callboard."""

import os
import sys


def library_path() -> list[str]:
    """Returns `sys.path` without the working directory that the command has appended to it.

    An editable installation is found after all of `sys.path`, so a `callboard.py` in the working directory, which may
    be a downloaded run, would take its place in an interpreter that has not imported Callboard yet.
    """
    try:
        appended = sys.path[-1:] == [os.getcwd()]
    except OSError:  # The working directory was removed.
        appended = False
    return sys.path[:-1] if appended else list(sys.path)
