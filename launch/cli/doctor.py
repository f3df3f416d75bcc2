"""Diagnosis of this machine and installation, with advice."""

import os
import platform
import shutil
import subprocess
import sys
from typing import NamedTuple

from ..package_versions import PINS, version_of
from ..ports import reserve_any

_OTHERS = ("numpy", "gymnasium", "dm-env", "procgen", "ray", "ale-py", "mujoco")
_MIN_FREE_GB = 2.0


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Check everything that a run needs."""
    return [finding for look in (_python, _packages, _imports, _ports, _gpus, _disk) for finding in look()]


def _python() -> list[Finding]:
    version = platform.python_version()
    ok = sys.version_info[:2] == (3, 10)
    return [
        Finding("Python", ok, version, "" if ok else "Launchpad and Procgen need Python 3.10: make install finds it")
    ]


def _packages() -> list[Finding]:
    findings = []
    for name, pin in PINS.items():
        found = version_of(name)
        advice = "" if found == pin else f"needs exactly {name}=={pin}: run make install"
        findings.append(Finding(name, found == pin, found or "missing", advice))
    for name in _OTHERS:
        found = version_of(name)
        findings.append(Finding(name, True, found or "not installed (optional)"))
    return findings


def _imports() -> list[Finding]:
    """Import the compiled packages in a separate process, since an incompatible combination may crash it."""
    code = "import tensorflow, reverb, launchpad, courier; courier.Server(); print('ok')"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    ok = done.returncode == 0
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    advice = "" if ok else "the versions above do not fit together: run make install"
    return [Finding("TensorFlow, Reverb and Launchpad load together", ok, "yes" if ok else last, advice)]


def _ports() -> list[Finding]:
    try:
        reserve_any().release()
    except OSError as error:
        return [Finding("ports", False, str(error), "allow this user to bind ports above 1024")]
    return [Finding("ports", True, "a free port can be bound")]


def _gpus() -> list[Finding]:
    if not shutil.which("nvidia-smi"):
        return [Finding("GPUs", True, "none (learners run on the CPU)")]
    code = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    count = done.stdout.strip() or "0"
    advice = "" if count != "0" else "install the extra `cuda` and put its libraries on LD_LIBRARY_PATH, see the README"
    return [Finding("GPUs", count != "0", f"{count} seen by TensorFlow", advice)]


def _disk() -> list[Finding]:
    free = shutil.disk_usage(os.getcwd()).free / 1e9
    ok = free >= _MIN_FREE_GB
    return [Finding("disk", ok, f"{free:.1f} GB free here", "" if ok else "runs write checkpoints and logs: make room")]
