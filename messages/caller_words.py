"""The words in which messages name what a user can change: options for the command, arguments for a Python program."""

import contextlib
from collections.abc import Iterator

_by_command = 0
"""How many calls of the command are being executed in this process."""


@contextlib.contextmanager
def words_of_command() -> Iterator[None]:
    """Messages that are made within the context are read by a user of the command."""
    global _by_command
    _by_command += 1
    try:
        yield
    finally:
        _by_command -= 1


def is_by_command() -> bool:
    """Returns whether a user of the command reads the messages."""
    return _by_command > 0


def argument(name: str, value: str | bool | int = True) -> str:
    """Returns how the caller gives an argument of a run: `--resume` or `resume=True`.

    Args:
      name: name of the argument in Python, such as `launcher`.
      value: its value, such as `threads`: `--launcher threads` or `launcher="threads"`.
    """
    if not is_by_command():
        return f"{name}={value}" if isinstance(value, int) else f'{name}="{value}"'
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {str(value).lower() if value is False else value}"
