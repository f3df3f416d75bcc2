"""Shared libraries that stand in for NVIDIA's driver and CUDA where there is no GPU."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from callboard.launch.processes.cuda_libraries import LIBRARIES

_DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return %(code)d; }
int cuDriverGetVersion(int *version) { *version = %(cuda)d; return 0; }
int cuDeviceGetCount(int *count) { *count = %(gpus)d; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Stub GPU", size); return 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = 1000000; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? %(major)d : 0;
  return 0;
}
"""

_WITH_DRIVER = """
import os
exists = os.path.exists
os.path.exists = lambda path: path == "/dev/nvidiactl" or exists(path)
"""


VERSIONS = {"cudnn": "8.6.0.163", "cufft": "10.9.1", "curand": "10.3.0.86"}
"""Versions of packages that `install_wheels` makes, where they are not 11.99.1."""


def compile_library(path, source, *needed):
    """Compiles a shared library, whose name in other libraries is that of its file."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        compiler,
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{path.name}",
        "-o",
        str(path),
        "-x",
        "c",
        "-",
        "-x",
        "none",
        *needed,
    ]
    subprocess.run(command, input=source, text=True, check=True)


def install_driver(folder, cuda=12040, gpus=1, major=9, code=0):
    """Makes a driver; the processes of `variables` take this machine for one that has it."""
    values = {"cuda": cuda, "gpus": gpus, "major": major, "code": code}
    compile_library(folder / "driver" / "libcuda.so.1", _DRIVER % values)
    (folder / "site").mkdir(exist_ok=True)
    # Python imports it at its start.
    (folder / "site" / "sitecustomize.py").write_text(_WITH_DRIVER)


def install_wheels(folder, left_out=()):
    """Makes the libraries of the extra `cuda` as its wheels would install them."""
    site = folder / "site"
    compile_library(site / "stub.so", "")
    for package, inside, names in LIBRARIES:
        metadata = site / f"nvidia_{package.replace('-', '_')}_cu11-11.99.1.dist-info"
        metadata.mkdir()
        version = VERSIONS.get(package, "11.99.1")
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nvidia-{package}-cu11\nVersion: {version}\n")
        for name in names:
            if name not in left_out:
                path = site / "nvidia" / inside / "lib" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(site / "stub.so", path)


def variables(folder, **others):
    """Returns the environment of processes that have what was installed in `folder`."""
    found = {**os.environ, "PYTHONPATH": str(folder / "site"), "LD_LIBRARY_PATH": str(folder / "driver"), **others}
    return {name: value for name, value in found.items() if value is not None}


def run_with(code, folder, **others):
    """Runs a program with those variables; returns the lines that it prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=variables(folder, **others), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


MAPPED = "[print(line.split()[-1]) for line in open('/proc/self/maps') if '/nvidia/' in line and 'r-xp' in line]"
"""A statement that prints the stubs which a process has loaded."""


def mapped(lines):
    """Returns the names of the stubs that `MAPPED` has printed."""
    return {pathlib.PurePath(line).name for line in lines if "/nvidia/" in line}
