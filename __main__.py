"""The command `callboard`, also as `python -m callboard`: takes signals before anything large is imported."""

import os

from .launch.stop_signals import Stopped, raise_at_signals


def main() -> None:
    """Runs the command and ends the process."""
    try:
        raise_at_signals()
        from .launch.cli.command import run_command
    except Stopped as stopped:
        os._exit(stopped.exit_code)
    run_command()


if __name__ == "__main__":
    main()
