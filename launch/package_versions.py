"""The versions of what Callboard stands on."""

import importlib.metadata
import platform

# Compiled against each other: another one of them ends in an undefined symbol at import.
PINS = {"tensorflow": "2.12.0", "dm-reverb": "0.11.0", "dm-launchpad-nightly": "0.5.2.dev20230303"}


def version_of(package: str) -> str | None:
    """The installed version of a package; None if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """What machines that work on one run must have in common, by name."""
    packages = {f"the version of {name}": str(version_of(name)) for name in ("callboard", *PINS, "numpy", "gymnasium")}
    return {"the version of Python": ".".join(platform.python_version_tuple()[:2]), **packages}
