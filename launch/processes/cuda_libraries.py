"""The CUDA libraries of the extra `cuda`, which TensorFlow 2.12 finds only where they are loaded before.

TensorFlow opens each library by its bare name: libcudart while it is imported, because its kernels register there, and
the others when it first lists the GPUs.  The dynamic linker gives it a library of that name that the process has
loaded already, from wherever that was.  So importing Callboard loads libcudart, and a process that uses a GPU then
loads the others.  Neither happens on a machine without NVIDIA's driver, or where `CUDA_VISIBLE_DEVICES` hides all GPUs.

This module is imported with the package, so it imports little itself.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import NamedTuple

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")
"""Of which there is at least one where NVIDIA's driver is loaded; the second is that of WSL."""
RUNTIME = "libcudart.so.11.0"
LIBRARIES = (
    ("cuda-runtime", "cuda_runtime", (RUNTIME,)),
    ("cublas", "cublas", ("libcublasLt.so.11", "libcublas.so.11")),
    ("cufft", "cufft", ("libcufft.so.10",)),
    ("curand", "curand", ("libcurand.so.10",)),
    ("cusparse", "cusparse", ("libcusparse.so.11",)),
    ("cusolver", "cusolver", ("libcusolver.so.11",)),
    (
        "cudnn",
        "cudnn",
        (
            "libcudnn_ops_infer.so.8",
            "libcudnn_ops_train.so.8",
            "libcudnn_cnn_infer.so.8",
            "libcudnn_cnn_train.so.8",
            "libcudnn_adv_infer.so.8",
            "libcudnn_adv_train.so.8",
            "libcudnn.so.8",
        ),
    ),
)
"""Packages `nvidia-NAME-cu11`, their folders in `nvidia/`, and their libraries, each after those that it needs."""

_COMPILER = "nvidia-cuda-nvcc-cu11"
_CACHE_BYTES = "4000000000"
_loaded_late = False
"""Whether TensorFlow was imported before libcudart was loaded."""


class CudaLibrary(NamedTuple):
    """A library of the extra `cuda`."""

    name: str
    package: str
    version: str
    """The version of its package; empty where that is not installed."""
    path: str
    """The file; empty where there is none."""


def has_driver() -> bool:
    """Returns whether this machine has NVIDIA's driver."""
    return any(os.path.exists(path) for path in DRIVER_FILES)


def visible_gpus() -> list[str] | None:
    """Returns the names in `CUDA_VISIBLE_DEVICES` that CUDA reads: those before one that cannot be; None for all."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    return list(itertools.takewhile(lambda name: name and not name.startswith("-"), names))


def gpus_are_hidden() -> bool:
    """Returns whether `CUDA_VISIBLE_DEVICES` hides all GPUs from this process."""
    return visible_gpus() == []


def find_libraries() -> list[CudaLibrary]:
    """Returns the libraries in the order in which they can be loaded, also those that are missing."""
    return [library for names in LIBRARIES for library in _libraries_of(*names)]


def load_runtime() -> None:
    """Loads libcudart, if this process may use a GPU; must be called before TensorFlow is imported."""
    global _loaded_late
    if has_driver() and not gpus_are_hidden():
        _loaded_late = "tensorflow" in sys.modules
        _load(_libraries_of(*LIBRARIES[0]))


def load_libraries() -> None:
    """Loads all libraries, if this process may use a GPU, and sets how it does; must come before TensorFlow lists GPUs.

    Of environment variables that are set already, the values remain.
    """
    # Several nodes may share a GPU: each takes the memory that it needs, not all.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    # Otherwise a process prepares all kernels of TensorFlow when it first uses the GPU, not those that it calls.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    # What the driver has compiled for a GPU that is newer than TensorFlow; it forgets it where the cache is too small.
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", _CACHE_BYTES)
    if has_driver() and not gpus_are_hidden():
        _load(find_libraries())
        _name_compiler_to_xla()


def cache_bytes() -> int:
    """Returns how much compiled code the driver keeps for processes that use a GPU."""
    if os.environ.get("CUDA_CACHE_DISABLE", "0") != "0":
        return 0
    value = os.environ.get("CUDA_CACHE_MAXSIZE", "")
    return int(value) if value.isdecimal() else int(_CACHE_BYTES)


def why_unseen() -> str:
    """Returns a likely reason, with advice, for which TensorFlow in this process sees no GPU though there is one."""
    if _loaded_late:
        return "TensorFlow was imported before Callboard: import Callboard first"
    missing = sorted({library.package for library in find_libraries() if not library.path})
    return f"without {', '.join(missing)}: see `callboard doctor`" if missing else "see `callboard doctor`"


def _libraries_of(package: str, folder: str, names: tuple[str, ...]) -> list[CudaLibrary]:
    import importlib.metadata

    package = f"nvidia-{package}-cu11"
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    folders = [os.path.join(os.path.abspath(entry), "nvidia", folder, "lib") for entry in sys.path if entry]
    paths = [[path for one in folders if os.path.exists(path := os.path.join(one, name))] for name in names]
    return [
        CudaLibrary(name, package, version, found[0] if found else "") for name, found in zip(names, paths, strict=True)
    ]


def _name_compiler_to_xla() -> None:
    """Sets where XLA finds CUDA's compiler and its library of functions, unless the user has."""
    import importlib.metadata

    try:
        folder = os.path.abspath(str(importlib.metadata.distribution(_COMPILER).locate_file("nvidia/cuda_nvcc")))
    except importlib.metadata.PackageNotFoundError:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    # Flags are separated by spaces.
    if os.path.isdir(folder) and " " not in folder and "--xla_gpu_cuda_data_dir" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_cuda_data_dir={folder}".strip()


def _load(libraries: list[CudaLibrary]) -> None:
    import contextlib
    import ctypes

    for library in libraries:
        if library.path:
            # A file that cannot be loaded is one more that TensorFlow does not find; `callboard doctor` names it.
            with contextlib.suppress(OSError):
                ctypes.CDLL(library.path, mode=ctypes.RTLD_GLOBAL)
