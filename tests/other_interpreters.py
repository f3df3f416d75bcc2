"""The Python interpreters of this machine."""

import os
import pathlib
import subprocess


def interpreters():
    """Every Python from 3.9 on that this machine has."""
    places = [pathlib.Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    places += sorted(pathlib.Path.home().glob(".pyenv/versions/*/bin"))
    found = {}
    for version in range(9, 14):
        for place in places:
            python = place / f"python3.{version}"
            if os.access(python, os.X_OK) and not (place / "pyvenv.cfg").exists():
                if subprocess.run([python, "-c", "import ssl, json"], capture_output=True).returncode == 0:
                    found.setdefault(version, python)
    return found
