"""The process in which `callboard check` looks at an environment, see `trial_process`."""

from collections.abc import Sequence

from .examination import examine_environment
from .trial_process import serve_trial


def main(descriptor: int, directories: Sequence[str], by_command: bool) -> None:
    """Looks at an environment, see `examine_environment`."""
    serve_trial(descriptor, directories, by_command, examine_environment)
