"""`callboard doctor`: checks this machine and installation, with advice."""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from ..environments.workers.interpreters import PYTHON, find_interpreter
from ..errors import CallboardError, check_working_directory
from ..launch.processes.cuda_libraries import (
    CudaLibrary,
    cache_bytes,
    find_libraries,
    has_driver,
    load_libraries,
    visible_gpus,
)
from ..launch.processes.gpu_driver import Driver, Gpu, find_gpus, only_answers
from ..launch.processes.listen_filter import refusal
from ..launch.processes.package_versions import PINS, version_of
from ..launch.processes.ports import reserve_any
from ..messages.install_commands import install_command
from ..runtime.interpreter import python_command
from .command_parser import CommandParser

_OTHERS = {
    "numpy": "import numpy",
    "gymnasium": "import gymnasium",
    "dm-env": "import dm_env",
    "procgen": "import procgen; procgen.ProcgenGym3Env(num=1, env_name='coinrun')",
    "ray": "import ray",
    "ale-py": "import ale_py; ale_py.ALEInterface()",
    "mujoco": "import mujoco",
}
"""Packages that may be missing, and what loads their libraries."""
_ADVICE = {"procgen": "it needs libglib, on Debian and Ubuntu `apt-get install libglib2.0-0`"}
_MIN_FREE_GB = 2.0
_WITHOUT_MACHINE_CODE = (9, 0)
"""The first compute capability that TensorFlow 2.12 was not compiled for."""


_SECONDS = 300.0
"""The longest time that a check in another process may take."""
_ENOUGH_CACHE = 10**9

_LOAD = f"""
import ctypes, json, sys
from {find_libraries.__module__} import find_libraries
from {only_answers.__module__} import only_answers
with only_answers() as answers:
    for library in find_libraries():
        if library.name in sys.argv[1:]:
            continue
        print(json.dumps([library.name, "", None]), file=answers)
        try:
            ctypes.CDLL(library.path or library.name, mode=ctypes.RTLD_GLOBAL)
            # The name in the file system has the library's own version.
            start = "/" + library.name.partition(".so")[0] + ".so"
            paths = [line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps")]
            found = library.path or next((path for path in paths if start in path), library.name)
            print(json.dumps([library.name, found, ""]), file=answers)
        except OSError as error:
            print(json.dumps([library.name, "", str(error)]), file=answers)
"""
_SEE = f"""
from {load_libraries.__module__} import load_libraries
from {only_answers.__module__} import only_answers
with only_answers() as answers:
    load_libraries()
    import tensorflow as tf
    print(len(tf.config.list_physical_devices("GPU")), file=answers)
"""


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if nothing has to be fixed."""
    parser = CommandParser("callboard doctor", description="Checks this machine and installation.")
    parser.add_argument("--env-python", metavar="PATH", help="also check an interpreter for environments")
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    findings = examine() if known.env_python is None else [*examine(), _env_python(known.env_python)]
    if known.json:
        print(json.dumps([finding._asdict() for finding in findings]))
    else:
        table = Table.grid(padding=(0, 2))
        for finding in findings:
            table.add_row("ok" if finding.ok else "WRONG", finding.name, finding.found, finding.advice)
        Console(highlight=False, markup=False, emoji=False).print(table)
    return 0 if all(finding.ok for finding in findings) else 1


def examine() -> list[Finding]:
    """Returns the results of all checks."""
    looks = (_python, _packages, _imports, _tensorboard, _ports, _gpus, _disk)
    return [finding for look in looks for finding in look()]


def _python() -> list[Finding]:
    version = platform.python_version()
    ok = sys.version_info[:2] == (3, 10)
    return [Finding("Python", ok, version, "" if ok else "Launchpad and Procgen need Python 3.10; run make install")]


def _env_python(setting: str) -> Finding:
    """Looks at the interpreter of `--env-python`."""
    try:
        found = find_interpreter(setting)
    except CallboardError as error:
        return Finding(PYTHON, False, setting, str(error))
    packages = ", ".join(f"{name} {version}" for name, version in found.packages.items())
    return Finding(PYTHON, True, f"{found.text}: {packages}")


def _packages() -> list[Finding]:
    findings = []
    for name, pin in PINS.items():
        found = version_of(name)
        advice = "" if found == pin else f"needs exactly {name}=={pin}; run make install"
        findings.append(Finding(name, found == pin, found or "missing", advice))
    return findings + [_other(name, code) for name, code in _OTHERS.items()]


def _other(name: str, code: str) -> Finding:
    """Loads an installed package in another process, which a library that does not fit may crash."""
    found = version_of(name)
    if found is None:
        return Finding(name, True, "not installed (optional)")
    error = _error_of(code)
    advice = _ADVICE.get(name, "install it again; its environments cannot be used until it loads")
    return Finding(name, False, f"{found}: {error}", advice) if error else Finding(name, True, found)


def _error_of(code: str, environment: Mapping[str, str] | None = None) -> str:
    """Returns the last line of the error of a Python program; empty if it succeeds."""
    done = _run(code, environment=environment)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no output"])[-1]


def _run(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in another process; one that takes too long has failed."""
    command = python_command(code, *arguments)
    try:
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        answers = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        return subprocess.CompletedProcess(command, 1, answers, f"it has not ended for {_SECONDS:.0f} s")


def _imports() -> list[Finding]:
    """Imports the compiled packages in another process, since an incompatible combination may crash it."""
    code = "import tensorflow, reverb, launchpad, courier; courier.Server(); print('ok')"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    error = _error_of(code, environment)
    advice = "the versions above do not match; run make install" if error else ""
    return [Finding("TensorFlow, Reverb and Launchpad load together", not error, error or "yes", advice)]


def _tensorboard() -> list[Finding]:
    """Imports what the `tensorboard` command imports; it is an old version, which needs an old setuptools."""
    error = _error_of("import tensorboard.default")
    if not error:
        return [Finding("TensorBoard", True, version_of("tensorboard") or "yes")]
    advice = f"`{install_command('setuptools<81')}` lets it start; runs do not need it"
    return [Finding("TensorBoard", False, error, advice)]


def _ports() -> list[Finding]:
    try:
        reserve_any().release()
    except OSError as error:
        return [Finding("ports", False, str(error), "allow this user to bind ports above 1024")]
    reason = refusal()
    if reason:
        advice = "runs are open to other machines: guard them with a firewall, or --private-network"
        return [Finding("ports", False, f"the kernel refuses packet filters: {reason}", advice)]
    return [Finding("ports", True, "a free port can be bound, and closed to other machines")]


def _gpus() -> list[Finding]:
    if not has_driver():
        return [Finding("GPUs", True, "none (learners run on the CPU)")]
    driver = find_gpus()
    findings = [_driver(driver), *map(_gpu, driver.gpus)]
    if driver.gpus or driver.error:
        findings += _cuda_libraries()
    return [*findings, _seen_by_tensorflow()] if driver.gpus else findings


def _driver(driver: Driver) -> Finding:
    name, version = "NVIDIA driver", ".".join(map(str, driver.cuda))
    if driver.error:
        return Finding(name, False, driver.error, "install the driver again; `nvidia-smi` must list the GPUs")
    newest = max((gpu.capability for gpu in driver.gpus), default=(0, 0))
    # Machine code of CUDA 11.8 runs with any driver for CUDA 11; only that of 11.8 compiles its PTX.
    needed = (11, 8) if newest >= _WITHOUT_MACHINE_CODE else (11, 0)
    if driver.cuda < needed:
        release = "520.61.05" if needed == (11, 8) else "450.80.02"
        return Finding(name, False, f"too old: for CUDA {version}", f"TensorFlow needs release {release} or later")
    advice = ""
    if not driver.gpus:
        advice = "learners run on the CPU; `nvidia-smi` must list a GPU"
        if visible_gpus() is not None:
            value = os.environ["CUDA_VISIBLE_DEVICES"]
            advice = f"learners run on the CPU: CUDA_VISIBLE_DEVICES={value!r} hides the GPUs; unset it to check them"
    return Finding(name, True, f"for CUDA {version}, {len(driver.gpus)} GPU(s)", advice)


def _gpu(gpu: Gpu) -> Finding:
    capability = ".".join(map(str, gpu.capability))
    found = f"{gpu.name}, {gpu.bytes / 1e9:.0f} GB, compute capability {capability}"
    if gpu.capability < _WITHOUT_MACHINE_CODE:
        return Finding("GPU", True, found)
    folder = os.environ.get("CUDA_CACHE_PATH", "~/.nv/ComputeCache")
    advice = (
        "TensorFlow has no machine code for it: the driver compiles each kernel at its first use, for minutes in all, "
        f"and keeps up to {cache_bytes() / 1e9:g} GB in {folder} (CUDA_CACHE_MAXSIZE, CUDA_CACHE_PATH)"
    )
    if cache_bytes() < _ENOUGH_CACHE:
        return Finding("GPU", False, found, f"{advice}: unset CUDA_CACHE_DISABLE and CUDA_CACHE_MAXSIZE")
    return Finding("GPU", True, found, advice)


def _cuda_libraries() -> list[Finding]:
    """Loads every library, each after those that it needs, in another process; one that ends it is left out then."""
    loaded: dict[str, tuple[str, str]] = {}
    crashed: dict[str, str] = {}
    while True:
        done = _run(_LOAD, *crashed)
        ended = None
        for name, path, error in (json.loads(line) for line in done.stdout.splitlines()):
            ended = name if error is None else None
            loaded[name] = path, error
        if ended is None:
            break
        crashed[ended] = (done.stderr.strip().splitlines() or ["no output"])[-1]
    pins = _pinned_versions()
    return [
        _cuda_library(library, *loaded.get(library.name, ("", "the process that loads it has failed")), pins)
        if library.name not in crashed
        else _cuda_library(library, "", f"the process that loads it has failed: {crashed[library.name]}", pins)
        for library in find_libraries()
    ]


def _cuda_library(library: CudaLibrary, path: str, error: str, pins: Mapping[str, str]) -> Finding:
    pin = pins.get(library.package, "")
    install = f"`{install_command('callboard[cuda]')}` installs {library.package} {pin}".rstrip()
    again = f"remove {library.package}, and install it again: {install}"
    version = library.version or "of no package"
    if not error:
        fits = not (library.path and library.version and pin) or _fits(library.version, pin)
        return Finding(library.name, fits, f"{version}, {path}", "" if fits else again)
    if library.path:
        return Finding(library.name, False, f"{version}, {library.path}: {error}", again)
    if library.version:
        return Finding(library.name, False, f"missing from {library.package} {version}", again)
    return Finding(library.name, False, "missing", install)


def _pinned_versions() -> dict[str, str]:
    """Returns the versions of the packages of the extra `cuda`."""
    requirements = importlib.metadata.requires(__name__.partition(".")[0]) or []
    return dict(re.findall(r"^(nvidia-[\w-]+)==([\w.]+)", "\n".join(requirements), re.MULTILINE))


def _fits(version: str, pin: str) -> bool:
    """Returns whether TensorFlow works with a version: it takes later ones of the same major version."""
    found, needed = ([int(part) for part in re.findall(r"\d+", one)] for one in (version, pin))
    return found[:1] == needed[:1] and found >= needed


def _seen_by_tensorflow() -> Finding:
    done = _run(_SEE)
    count = done.stdout.strip() or "0"
    advice = "" if count != "0" else "repair what is WRONG above; the log with TF_CPP_MIN_LOG_LEVEL=0 says why"
    return Finding("GPUs", count != "0", f"{count} seen by TensorFlow", advice)


def _disk() -> list[Finding]:
    try:
        check_working_directory()
    except CallboardError as error:
        return [Finding("disk", False, str(error), "")]
    free = shutil.disk_usage(os.getcwd()).free / 1e9
    ok = free >= _MIN_FREE_GB
    return [Finding("disk", ok, f"{free:.1f} GB free here", "" if ok else "runs write checkpoints; free some space")]
