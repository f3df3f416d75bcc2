"""The optional package Minari, whose format recorded episodes have."""

import importlib.util

from ...errors import CallboardError
from ...install_commands import install_command

MINARI_VERSION = "0.5.3"
"""The version whose format is written."""


def require_minari(what: str) -> None:
    """Refuses to continue without Minari.

    Args:
      what: what needs it, such as `record_episodes`.
    """
    missing = [name for name in ("minari", "h5py") if importlib.util.find_spec(name) is None]
    if missing:
        raise CallboardError(f"{what} needs the package {missing[0]!r}: {install_command('callboard[minari]')}")
