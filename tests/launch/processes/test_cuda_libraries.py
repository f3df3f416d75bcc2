"""Which processes load the CUDA libraries of the extra `cuda`, in which order, and from where."""

import shutil

import pytest
import stub_cuda

from callboard.launch.processes import cuda_libraries
from callboard.launch.processes.cuda_libraries import LIBRARIES, RUNTIME, find_libraries, has_driver

ALL = {name for _, _, names in LIBRARIES for name in names}
LOAD = "from callboard.launch.processes.cuda_libraries import load_libraries; load_libraries(); "


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A folder with a driver and the wheels."""
    folder = tmp_path_factory.mktemp("machine")
    stub_cuda.install_driver(folder)
    stub_cuda.install_wheels(folder)
    return folder


def test_importing_callboard_loads_the_runtime_alone(machine):
    found = stub_cuda.run_with(f"import callboard; {stub_cuda.MAPPED}", machine)
    assert stub_cuda.mapped(found) == {RUNTIME}
    assert str(machine / "site" / "nvidia" / "cuda_runtime" / "lib" / RUNTIME) in found


def test_a_process_that_uses_a_gpu_loads_all_of_them(machine):
    code = f"import os; {LOAD}{stub_cuda.MAPPED}; print(os.environ['CUDA_CACHE_MAXSIZE'])"
    *found, cache = stub_cuda.run_with(code, machine, CUDA_CACHE_MAXSIZE=None)
    assert stub_cuda.mapped(found) == ALL and int(cache) > 1 << 30
    assert stub_cuda.run_with(code, machine, CUDA_CACHE_MAXSIZE="5")[-1] == "5"


def test_xla_finds_the_compiler_of_the_extra(tmp_path):
    stub_cuda.install_driver(tmp_path)
    metadata = tmp_path / "site" / "nvidia_cuda_nvcc_cu11-11.8.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: nvidia-cuda-nvcc-cu11\nVersion: 11.8.1\n")
    folder = tmp_path / "site" / "nvidia" / "cuda_nvcc"
    folder.mkdir(parents=True)
    code = f"import os; {LOAD}print(os.environ['XLA_FLAGS'])"
    assert stub_cuda.run_with(code, tmp_path, XLA_FLAGS=None) == [f"--xla_gpu_cuda_data_dir={folder}"]
    assert stub_cuda.run_with(code, tmp_path, XLA_FLAGS="--other=1")[-1].startswith("--other=1 --xla_gpu")
    own = "--xla_gpu_cuda_data_dir=/own"
    assert stub_cuda.run_with(code, tmp_path, XLA_FLAGS=own) == [own]


@pytest.mark.parametrize("hidden", ["-1", "", " -1,0"])
def test_a_process_from_which_the_gpus_are_hidden_loads_none(machine, hidden):
    assert stub_cuda.run_with(f"{LOAD}{stub_cuda.MAPPED}", machine, CUDA_VISIBLE_DEVICES=hidden) == []


def test_libraries_are_loaded_after_those_that_they_need(tmp_path):
    """libcusolver needs libcublas, which is in another folder, and is found only where it is loaded already."""
    stub_cuda.install_driver(tmp_path)
    stub_cuda.install_wheels(tmp_path)
    inside = tmp_path / "site" / "nvidia"
    needed = inside / "cublas/lib/libcublas.so.11"
    stub_cuda.compile_library(needed, "int from_needed(void) { return 1; }")
    source = "int from_needed(void); int from_needing(void) { return from_needed(); }"
    stub_cuda.compile_library(inside / "cusolver/lib/libcusolver.so.11", source, str(needed))
    assert "libcusolver.so.11" in stub_cuda.mapped(stub_cuda.run_with(f"{LOAD}{stub_cuda.MAPPED}", tmp_path))


def test_a_damaged_library_is_left_to_the_doctor(tmp_path):
    stub_cuda.install_driver(tmp_path)
    stub_cuda.install_wheels(tmp_path)
    (tmp_path / "site/nvidia/cublas/lib/libcublas.so.11").write_bytes(b"no library")
    found = stub_cuda.mapped(stub_cuda.run_with(f"{LOAD}{stub_cuda.MAPPED}", tmp_path))
    assert found == ALL - {"libcublas.so.11"}


def test_a_machine_without_a_driver_loads_nothing(tmp_path):
    (tmp_path / "site").mkdir()
    stub_cuda.install_wheels(tmp_path)
    assert not has_driver() or pytest.skip("this machine has a driver")
    assert stub_cuda.run_with(f"{LOAD}{stub_cuda.MAPPED}", tmp_path) == []


def test_libraries_are_found_without_the_metadata_of_their_packages(tmp_path, monkeypatch):
    stub_cuda.install_wheels(tmp_path)
    for folder in (tmp_path / "site").glob("nvidia_cublas*"):
        shutil.rmtree(folder)
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = {library.name: library for library in find_libraries()}["libcublas.so.11"]
    assert found.path == str(tmp_path / "site/nvidia/cublas/lib/libcublas.so.11") and found.version == ""


def test_missing_libraries_are_found_missing(tmp_path, monkeypatch):
    stub_cuda.install_wheels(tmp_path, left_out=["libcublas.so.11"])
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = {library.name: library for library in find_libraries()}
    assert found["libcublas.so.11"].path == "" and found["libcublas.so.11"].version == "11.99.1"
    assert found["libcublasLt.so.11"].path == str(tmp_path / "site/nvidia/cublas/lib/libcublasLt.so.11")
    assert cuda_libraries.why_unseen() == "without nvidia-cublas-cu11: see `callboard doctor`"


REGISTERS = """
#include <unistd.h>
void *handle;
void **__cudaRegisterFatBinary(void *code) {
  static int calls;
  if (!calls++) write(1, "registered\\n", 11);
  return &handle;
}
"""


@pytest.mark.slow
def test_tensorflow_registers_its_kernels_with_the_library_that_importing_callboard_has_loaded(tmp_path):
    stub_cuda.install_driver(tmp_path)
    stub_cuda.install_wheels(tmp_path)
    stub_cuda.compile_library(tmp_path / "site/nvidia/cuda_runtime/lib" / RUNTIME, REGISTERS)
    assert "registered" in stub_cuda.run_with("import callboard, tensorflow", tmp_path)
    # The other way around it is too late.
    late = "import tensorflow, callboard; from callboard.launch.processes.cuda_libraries import why_unseen; "
    found = stub_cuda.run_with(f"{late} print(why_unseen())", tmp_path)
    assert found == ["TensorFlow was imported before Callboard: import Callboard first"]
