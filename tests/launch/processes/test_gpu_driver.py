"""What is read from NVIDIA's driver, here from one that only answers."""

import pytest
import stub_cuda

CODE = "from callboard.launch.processes.gpu_driver import find_gpus; print(find_gpus())"


@pytest.mark.slow("daily")
@pytest.mark.parametrize("gpus, major", [(1, 9), (2, 8)])
def test_gpus_are_found(tmp_path, gpus, major):
    stub_cuda.install_driver(tmp_path, cuda=11080, gpus=gpus, major=major)
    one = f"Gpu(name='Stub GPU', capability=({major}, 0), bytes=1000000)"
    (found,) = stub_cuda.run_with(CODE, tmp_path)
    assert found == f"Driver(cuda=(11, 8), gpus=[{', '.join([one] * gpus)}], error='')"


def test_hidden_gpus_are_not_asked_for(tmp_path):
    stub_cuda.install_driver(tmp_path, code=999)
    assert stub_cuda.run_with(CODE, tmp_path, CUDA_VISIBLE_DEVICES="-1") == ["Driver(cuda=(12, 4), gpus=[], error='')"]


def test_a_driver_without_gpus_is_no_error(tmp_path):
    stub_cuda.install_driver(tmp_path, code=100)
    assert stub_cuda.run_with(CODE, tmp_path) == ["Driver(cuda=(12, 4), gpus=[], error='')"]


@pytest.mark.slow("daily")
def test_a_driver_that_cannot_be_used_gives_the_reason(tmp_path):
    stub_cuda.install_driver(tmp_path, code=803)
    assert "error='the driver refuses with CUDA error 803'" in stub_cuda.run_with(CODE, tmp_path)[0]
    (tmp_path / "driver/libcuda.so.1").write_bytes(b"no library")
    assert "error='libcuda.so.1 cannot be loaded: " in stub_cuda.run_with(CODE, tmp_path)[0]
