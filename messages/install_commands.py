"""The command that installs a package where Callboard runs, and where its own commands are."""

import importlib.util
import os
import shlex
import shutil
import sys


def install_command(*requirements: str) -> str:
    """Returns the command that installs packages into the environment of this process.

    Extras of Callboard are named `callboard[plot]`, in a clone and for a wheel alike: pip finds their packages in the
    Callboard that is installed there, and looks for no other.  A plain `pip` is named only where it is the one of this
    environment, as after `source .venv/bin/activate`.

    Args:
      requirements: what to install, as pip takes it.
    """
    packages = " ".join(f"'{requirement}'" for requirement in requirements)
    folder = os.path.dirname(sys.executable)
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {_shown(sys.executable)} {packages}"
    pip = shutil.which("pip")
    if pip is not None and os.path.dirname(pip) == folder:
        return f"pip install {packages}"
    return f"{_shown(sys.executable)} -m pip install {packages}"


def python_path() -> str:
    """Returns the path of this interpreter."""
    return sys.executable


def command_path() -> str:
    """Returns the path of the command `callboard` of this installation."""
    return os.path.join(os.path.dirname(sys.executable), "callboard")


def _shown(path: str) -> str:
    """Returns a path as one writes it in a shell in the working directory."""
    inside = os.path.relpath(path)
    return shlex.quote(path if inside.startswith(os.pardir) else inside)
