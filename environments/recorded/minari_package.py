"""The optional package Minari, whose format recorded episodes have."""

import importlib.util

from ...errors import MissingPackage

MINARI_VERSION = "0.5.3"
"""The version whose format is written."""


def require_minari(what: str) -> None:
    """Refuses to continue without Minari.

    Args:
      what: what needs it, such as `record_episodes`.
    """
    missing = [name for name in ("minari", "h5py") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackage(what, missing[0], "callboard[minari]")
