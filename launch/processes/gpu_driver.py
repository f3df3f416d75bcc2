"""The GPUs of this machine, as NVIDIA's driver lists them.

Another process asks it: one that has initialized the driver itself holds the GPUs open, and its forks cannot use them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import subprocess
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from ...runtime.interpreter import python_command
from .cuda_libraries import gpus_are_hidden, has_driver

_LIBRARY = "libcuda.so.1"
_SECONDS = 60.0
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, and _MINOR.


class Gpu(NamedTuple):
    """A GPU that processes can use."""

    name: str
    capability: tuple[int, int]
    """The compute capability, such as (9, 0)."""
    bytes: int
    """Size of its memory."""


class Driver(NamedTuple):
    """The driver and its GPUs."""

    cuda: tuple[int, int]
    """The newest CUDA that the driver runs, such as (11, 8); (0, 0) without a driver."""
    gpus: list[Gpu]
    """Those that `CUDA_VISIBLE_DEVICES` names, in its order."""
    error: str = ""
    """Why the driver cannot be used."""


@functools.cache
def find_gpus() -> Driver:
    """Returns the driver and the GPUs, as they were when this process first called the function."""
    if not has_driver():
        return Driver((0, 0), [])
    code = f"from {__name__} import answer; answer()"
    try:
        done = subprocess.run(python_command(code), capture_output=True, text=True, timeout=_SECONDS, check=False)
        cuda, gpus, error = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Driver((0, 0), [], f"the driver has not answered for {_SECONDS:.0f} s")
    except ValueError:
        return Driver((0, 0), [], (done.stderr.strip().splitlines() or ["the driver has ended the process"])[-1])
    return Driver(tuple(cuda), [Gpu(name, tuple(capability), size) for name, capability, size in gpus], error)


def answer() -> None:
    """Prints what `find_gpus` returns, for the process that has started this one."""
    with only_answers() as answers:
        answers.write(json.dumps(_asked()))


@contextlib.contextmanager
def only_answers() -> Iterator[TextIO]:
    """Opens this process's output for an answer; what libraries print goes to its errors."""
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        yield answers


def _asked() -> Driver:
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return Driver((0, 0), [], f"{_LIBRARY} cannot be loaded: {error}")
    number = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    cuda = number.value // 1000, number.value % 1000 // 10
    if gpus_are_hidden():
        return Driver(cuda, [])
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number))
    if code == 100:  # CUDA_ERROR_NO_DEVICE.
        return Driver(cuda, [])
    if code:
        return Driver(cuda, [], f"the driver refuses with CUDA error {code}")
    return Driver(cuda, [_gpu(driver, index) for index in range(number.value)])


def _gpu(driver: ctypes.CDLL, index: int) -> Gpu:
    device, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    numbers = ctypes.c_int(), ctypes.c_int()
    for number, attribute in zip(numbers, _CAPABILITY, strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
    return Gpu(name.value.decode(errors="replace"), (numbers[0].value, numbers[1].value), size.value)
