"""`callboard doctor`: checks this machine and installation, with advice."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from ..environments.workers.interpreters import PYTHON, find_interpreter
from ..errors import CallboardError
from ..launch.processes.cuda_libraries import cache_bytes, find_libraries, has_driver, load_libraries
from ..launch.processes.gpu_driver import Driver, Gpu, find_gpus
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


_LOAD = f"""
import ctypes, json
from {find_libraries.__module__} import find_libraries
errors = {{}}
for library in find_libraries():
    try:
        ctypes.CDLL(library.path or library.name, mode=ctypes.RTLD_GLOBAL)
        errors[library.name] = ""
    except OSError as error:
        errors[library.name] = str(error)
print(json.dumps(errors))
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
    done = subprocess.run(python_command(code), capture_output=True, text=True, env=environment, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no output"])[-1]


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
    if driver.gpus:
        findings += [*_cuda_libraries(), _seen_by_tensorflow()]
    return findings


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
    return Finding(name, True, f"for CUDA {version}, {len(driver.gpus)} GPU(s)")


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
    return Finding("GPU", True, found, advice)


def _cuda_libraries() -> list[Finding]:
    """Loads every library, each after those that it needs, in another process."""
    done = subprocess.run(python_command(_LOAD), capture_output=True, text=True, check=False)
    errors = json.loads(done.stdout or "{}")
    findings = []
    for library in find_libraries():
        error = errors.get(library.name, "the process that loads it has crashed")
        found = f"{library.version}, {library.path}" if library.path else "found by the dynamic linker"
        if not error:
            findings.append(Finding(library.name, True, found))
            continue
        advice = f"`{install_command('callboard[cuda]')}` installs {library.package}"
        if library.path:
            advice = f"remove {library.package}, and install it again: {advice}"
        findings.append(Finding(library.name, False, f"{found}: {error}" if library.path else "missing", advice))
    return findings


def _seen_by_tensorflow() -> Finding:
    loading = load_libraries.__module__
    code = (
        f"from {loading} import load_libraries; load_libraries(); import tensorflow as tf; "
        "print(len(tf.config.list_physical_devices('GPU')))"
    )
    done = subprocess.run(python_command(code), capture_output=True, text=True, check=False)
    count = done.stdout.strip() or "0"
    advice = "" if count != "0" else "repair what is WRONG above; the log with TF_CPP_MIN_LOG_LEVEL=0 says why"
    return Finding("GPUs", count != "0", f"{count} seen by TensorFlow", advice)


def _disk() -> list[Finding]:
    free = shutil.disk_usage(os.getcwd()).free / 1e9
    ok = free >= _MIN_FREE_GB
    return [Finding("disk", ok, f"{free:.1f} GB free here", "" if ok else "runs write checkpoints; free some space")]
