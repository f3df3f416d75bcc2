"""The installed versions of the packages that Callboard depends on."""

import importlib.metadata
import platform

from ... import __version__

# Compiled against each other: any other version fails with an undefined symbol at import.
PINS = {"tensorflow": "2.12.0", "dm-reverb": "0.11.0", "dm-launchpad-nightly": "0.5.2.dev20230303"}


def version_of(package: str) -> str | None:
    """Returns the installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Returns the versions that must agree on all machines of a run, by name."""
    packages = {f"the version of {name}": str(version_of(name)) for name in (*PINS, "numpy", "gymnasium")}
    # The metadata of an editable installation keeps the version at which it was installed.
    own = {"the version of callboard": __version__}
    return {"the version of Python": ".".join(platform.python_version_tuple()[:2]), **own, **packages}
