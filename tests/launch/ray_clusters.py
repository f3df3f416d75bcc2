"""Clusters of Ray whose machines are all this one."""

import contextlib
import pathlib
import shutil
import tempfile

import psutil
import tensorflow  # noqa: F401  (must come before `ray.init`)
from ended import still_running
from ray._common.utils import get_ray_address_file
from ray.cluster_utils import Cluster


@contextlib.contextmanager
def ray_cluster(machines, processors, gpus=0):
    """A head without room for nodes, and some machines with so many processors, and claimed GPUs, each."""
    # Sockets of Unix have short paths.
    temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    # `Cluster` writes its address there even if it has another directory, and does not make the folder.
    pathlib.Path(get_ray_address_file(None)).parent.mkdir(exist_ok=True)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "temp_dir": temporary}
    )
    try:
        for _ in range(machines):
            cluster.add_node(num_cpus=processors, num_gpus=gpus)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        processes = psutil.Process().children(recursive=True)
        cluster.shutdown()
        still_running(processes, timeout=10)
        shutil.rmtree(temporary, ignore_errors=True)
