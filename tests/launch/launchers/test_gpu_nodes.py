"""Which processes of a run load the CUDA libraries, on a machine that claims two GPUs."""

import pathlib

import pytest
import stub_cuda
from ray_clusters import ray_cluster

from callboard.launch.processes.cuda_libraries import LIBRARIES, RUNTIME

ALL = {name for _, _, names in LIBRARIES for name in names}
NODES = ("coordinator/0", "replay/0", "learner/0", "inference/0", "actor/0", "evaluator/0")
SETTINGS = ("--actors", 1, "--inference", "central", "--max-steps", 100_000_000, "--stop-return", "null")

pytestmark = pytest.mark.slow


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    """Makes the processes of this test take the machine for one with two GPUs, and the extra `cuda`."""
    folder = tmp_path / "machine"
    stub_cuda.install_driver(folder, gpus=2)
    stub_cuda.install_wheels(folder)
    for name, value in stub_cuda.variables(folder, CUDA_VISIBLE_DEVICES=None).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def loaded(process):
    """The CUDA libraries in a process's memory."""
    lines = pathlib.Path(f"/proc/{process}/maps").read_text().splitlines()
    return stub_cuda.mapped(line.split()[-1] for line in lines if "r-xp" in line)


def check_nodes(run):
    """Checks a run while it continues, and ends it; returns its output."""
    run.wait_for_steps(500)
    run.wait_until(lambda: (run.run_dir / "logs/evaluator-0.log").exists())
    found = {node: loaded(run.pid_of(node)) for node in NODES}
    for node, libraries in found.items():
        assert libraries == ALL if node in ("learner/0", "inference/0") else libraries <= {RUNTIME}, node
    assert not loaded(run.process.pid) - {RUNTIME}
    run.interrupt()
    run.wait(timeout=120)
    return run.text()


def test_learners_and_inference_nodes_load_them_and_no_others(two_gpus, train):
    text = check_nodes(train("--launcher", "processes", *SETTINGS))
    # The stub of the driver computes nothing, so TensorFlow cannot use it: the run says that it does not, and why.
    for node in ("learner/0", "inference/0"):
        assert f"{node}: computes on the CPU, because TensorFlow sees none of 2 GPU(s)" in text
    assert "dlopen" not in text


def test_nodes_that_ray_gives_a_gpu_do_so_too(two_gpus, train):
    with ray_cluster(machines=1, processors=8, gpus=2) as cluster:
        check_nodes(train("--launcher", "ray", "--ray-address", cluster.address, *SETTINGS))
