"""The interpreters of workers: an executable, a virtual environment, `same`, or one that uv makes (`uv:package`)."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from typing import Any, NamedTuple

from ...errors import CallboardError, printable, signal_name
from ...messages.install_commands import install_command

PYTHON = "env_python"
"""Option of every environment: the interpreter under which it is stepped."""
SAME = "same"
_UV = "uv:"
_OLDEST = (3, 9)
_PROBE = """
import json, sys
if sys.version_info < (3, 8):
    print(json.dumps([sys.version_info[:3], False, {}]))
    sys.exit()
from importlib import metadata, util
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
names = ("numpy", "gymnasium", "gym", "pettingzoo", "envpool", "ale-py", "mujoco", "dm-control")
found = {name: version(name) for name in names}
failure = ""
try:
    found["numpy"] and __import__("numpy")
except Exception as error:
    failure = " ".join(str(error).split()) or type(error).__name__
print(json.dumps([sys.version_info[:3], util.find_spec("pip") is not None, found, failure]))
"""
_PROBE_SECONDS = 60.0
_INSTALL_SECONDS = 1800.0


class Interpreter(NamedTuple):
    """An interpreter."""

    setting: str
    """How the user has named it."""
    executable: str
    version: tuple[int, ...]
    has_pip: bool
    packages: dict[str, str]
    """Versions of the packages of environments that it has."""

    @property
    def text(self) -> str:
        """The interpreter for messages, such as `Python 3.13.0 (py13/bin/python)`."""
        return f"Python {'.'.join(map(str, self.version))} ({self.setting})"

    def install_command(self, requirement: str) -> str:
        """Returns how a package is installed there."""
        if self.setting == SAME:
            return install_command(requirement)
        if self.setting.startswith(_UV):
            return f"--env-python {shlex.quote(f'{self.setting},{requirement}')}"
        if self.has_pip:
            return f"{shlex.quote(self.executable)} -m pip install '{requirement}'"
        return f"uv pip install --python {shlex.quote(self.executable)} '{requirement}'"


def absolute_interpreter(setting: Any) -> Any:
    """Returns the setting of an interpreter without relative paths: a resumed run may start in another directory."""
    if not isinstance(setting, str):
        return setting
    if setting.startswith(_UV):
        return _UV + ",".join(_requirements(setting))
    path = os.path.expanduser(setting)
    return os.path.abspath(path) if setting.strip() and os.path.exists(path) else setting


def _requirements(setting: str) -> list[str]:
    """Returns what `uv:` names: extras and versions of a package may have commas too."""
    given = re.split(r",(?![^\[\]]*\])(?!\s*(?:[<>!]|[=~]=))", setting.removeprefix(_UV))
    given = [one.strip() for one in given if one.strip()]
    return [os.path.abspath(one) if one.startswith(("./", "../")) else one for one in given]


def find_interpreter(setting: str) -> Interpreter:
    """Returns the interpreter that a setting names.

    Args:
      setting: the path of an executable of Python, or of a virtual environment; `same` for that of this process; or
        `uv:` and requirements separated by commas, from which uv makes a virtual environment, once on this machine.
        One of them may be `python==3.13`.

    Raises:
      CallboardError: there is none, or it is older than 3.9 or without NumPy.
    """
    if not isinstance(setting, str) or not setting.strip():
        raise CallboardError(f"{PYTHON} must be the path of a Python interpreter, not {setting!r}")
    if setting == SAME:
        executable = sys.executable
    elif setting.startswith(_UV):
        executable = _made_by_uv(setting)
    else:
        path = os.path.abspath(os.path.expanduser(setting))
        executable = os.path.join(path, "bin", "python") if os.path.isdir(path) else path
        if not os.path.exists(executable) and not os.path.dirname(setting):
            executable = shutil.which(setting) or executable
        if not os.path.isfile(executable):
            what = f"there is no {setting!r:.200}"
            if os.path.islink(executable) and not os.path.exists(executable):
                what = f"{executable!r:.200} is a link to {os.path.realpath(executable)!r:.200}, which does not exist"
            elif os.path.isdir(path):
                what = f"the folder {setting!r:.200} has no bin/python"
            elif os.path.exists(path):
                what = f"{setting!r:.200} is no file"
            raise CallboardError(
                f"{PYTHON}: {what}: name a Python interpreter, the folder of a virtual environment, or 'same'"
            )
    found = _probed(setting, executable)
    if found.version[:2] < _OLDEST:
        raise CallboardError(f"{PYTHON}: {found.text} is too old: workers need Python 3.9 or newer")
    if "numpy" not in found.packages:
        raise CallboardError(f"{PYTHON}: {found.text} has no NumPy: {found.install_command('numpy')}")
    return found


def worker_command(interpreter: Interpreter, code: str, *arguments: str) -> list[str]:
    """Returns the command line of an interpreter that runs `code`, and does not search the working directory."""
    return _command(interpreter.setting, interpreter.executable, code, *arguments)


def _command(setting: str, executable: str, code: str, *arguments: str) -> list[str]:
    path = repr(sys.path) if setting == SAME else "[part for part in sys.path if part]"
    return [executable, "-c", f"import sys; sys.path[:] = {path}\n{code}", *arguments]


@functools.cache
def _probed_once(setting: str, executable: str, changed: float) -> Interpreter:
    try:
        # A session of its own can be ended with what the program has started.
        process = subprocess.Popen(
            _command(setting, executable, _PROBE),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise _no_interpreter(setting, str(error)) from error
    try:
        printed, complaint = process.communicate(timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise _no_interpreter(setting, f"it has not ended after {_PROBE_SECONDS:.0f} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
    if code := process.returncode:
        how = f"it is ended by {signal_name(-code)}" if code < 0 else f"it ends with exit code {code}"
        lines = complaint.strip().splitlines() or [how]
        raise _no_interpreter(setting, lines[-1 if lines[0].startswith("Traceback") else 0])
    try:
        version, has_pip, packages, *failure = json.loads(printed.splitlines()[-1])
        known = {key: one for key, one in packages.items() if one}
        found = Interpreter(setting, executable, tuple(version), has_pip, known)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise _no_interpreter(setting, f"it runs a program, and prints {printed!r:.80}") from error
    if any(failure):
        install = found.install_command("numpy")
        raise CallboardError(f"{PYTHON}: NumPy of {found.text} cannot be imported ({failure[0]:.200}): {install}")
    return found


def _no_interpreter(setting: str, reason: str) -> CallboardError:
    return CallboardError(f"{PYTHON}: {setting!r:.200} is no Python 3 that starts: {reason:.120}")


def _probed(setting: str, executable: str) -> Interpreter:
    # What is installed changes the folder of packages, which is found from the executable.
    folders = pathlib.Path(executable).absolute().parent.parent.glob("lib/python3*/site-packages")
    return _probed_once(setting, executable, max((folder.stat().st_mtime for folder in folders), default=0.0))


def _made_by_uv(setting: str) -> str:
    """Returns the executable of a virtual environment with the packages of a setting, which is made if need be."""
    requirements = _requirements(setting)
    if not requirements or any(one.startswith("-") for one in requirements):  # These are options of uv.
        raise CallboardError(f"{PYTHON}: name a package after '{_UV}', such as '{_UV}gymnasium==1.1.1'")
    uv = shutil.which("uv") or os.path.join(os.path.dirname(sys.executable), "uv")
    if not os.path.exists(uv):
        raise CallboardError(f"{PYTHON}: {setting!r} needs uv: {install_command('uv')}")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "callboard" / "pythons"
    folder = cache / hashlib.sha256(",".join(sorted(requirements)).encode()).hexdigest()[:16]
    executable, finished = folder / "bin" / "python", folder / "callboard-finished"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        opened = open(folder.with_suffix(".lock"), "w")  # noqa: SIM115
    except OSError as error:
        raise CallboardError(
            f"{PYTHON}: {setting!r} cannot be installed into {cache} ({error.strerror}): set XDG_CACHE_HOME to a "
            "folder that can be written"
        ) from error
    with opened as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if finished.exists() and executable.exists():
            return str(executable)
        print(printable(f"callboard: {setting} is being installed into {folder}"), file=sys.stderr, flush=True)
        pythons = [one for one in requirements if one.startswith("python=")]
        versions = [part for one in pythons for part in ("--python", _python(one.removeprefix("python").lstrip("=")))]
        packages = [one for one in requirements if one not in pythons]
        _run_uv(setting, cache, [uv, "venv", "--quiet", "--clear", *versions, str(folder)])
        _run_uv(setting, cache, [uv, "pip", "install", "--quiet", "--python", str(executable), "numpy", *packages])
        finished.write_text(",".join(requirements) + "\n")
    return str(executable)


def _python(version: str) -> str:
    """Returns a version as it is; of a path, the executable itself: pyenv's depend on the working directory."""
    if os.sep not in version:
        return version
    command = [version, "-I", "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return version
    return done.stdout.strip() or version


def _run_uv(setting: str, folder: pathlib.Path, command: list[str]) -> None:
    # In the working directory, `uv.toml` and `pyproject.toml` of others could name the index.
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=_INSTALL_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise CallboardError(f"{PYTHON}: uv has not installed {setting!r} in {_INSTALL_SECONDS:.0f} s") from error
    if done.returncode:
        text = " ".join(done.stderr.split())
        raise CallboardError(f"{PYTHON}: uv cannot install {setting!r}: {text[-400:]}", done.stderr.strip())
