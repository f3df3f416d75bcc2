"""Numbers of things in messages."""


def counted(number: float, noun: str) -> str:
    """Returns `1 episode` or `2,000 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
