"""The command `callboard`, also as `python -m callboard`: takes signals before anything large is imported."""

import os
import sys

if __name__ == "__main__" and not sys.flags.isolated:
    # `python -m` puts the working directory first, where any file could take the place of a library.
    del sys.path[0]

from .launch.processes.stop_signals import Stopped, raise_at_signals


def main() -> None:
    """Runs the command and ends the process."""
    try:
        raise_at_signals()
        from .cli.command import run_command
    except Stopped as stopped:
        os._exit(stopped.exit_code)
    run_command()


if __name__ == "__main__":
    main()
