"""Clusters of Ray whose machines are all this one."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import psutil
import tensorflow  # noqa: F401  (must come before `ray.init`)
from ended import still_running
from open_door import free_port
from ray._common.utils import get_ray_address_file
from ray.cluster_utils import Cluster
from ray.util import get_node_ip_address

from callboard.runtime.deadlines import wait_until


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


@contextlib.contextmanager
def autoscaling_cluster(machines, processors, **variables):
    """The address of a head with so many processors, whose autoscaler adds up to so many machines like it.

    Its processes have these variables of the environment too.

    Ray's own class for this ends every process of Ray that it finds.
    """
    temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    address = f"{get_node_ip_address()}:{free_port()}"
    machine = {"resources": {"CPU": processors}, "node_config": {}}
    local = {"use_node_id_as_ip": True, "foreground_node_launch": True, "disable_node_updaters": True}
    local |= {"disable_launch_config_check": True, "worker_liveness_check": False}
    config = {
        "cluster_name": "autoscaling",
        "provider": {"type": "fake_multinode", "gcs_address": address, **local},
        "available_node_types": {
            "ray.head.default": {**machine, "max_workers": 0},
            "actors": {**machine, "min_workers": 0, "max_workers": machines},
        },
        "head_node_type": "ray.head.default",
        "max_workers": machines,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        **{f"{when}_commands": [] for when in ("initialization", "setup", "head_setup", "worker_setup")},
        **{f"{kind}_start_ray_commands": [] for kind in ("head", "worker")},
    }
    path = pathlib.Path(temporary, "cluster.json")
    path.write_text(json.dumps(config))
    command = ["ray", "start", "--head", "--block", f"--port={address.rpartition(':')[2]}", f"--num-cpus={processors}"]
    command += ["--include-dashboard=false", f"--temp-dir={temporary}", f"--autoscaling-config={path}"]
    command[0] = str(pathlib.Path(sys.executable).with_name("ray"))
    output = pathlib.Path(temporary, "head.out")
    variables |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    with output.open("w") as file:
        head = subprocess.Popen(command, env={**os.environ, **variables}, stdout=file, stderr=file)
    try:
        assert wait_until(lambda: "Ray runtime started" in output.read_text(), 60), output.read_text()
        yield address
    finally:
        # The machines that were added are not the head's processes any more.
        head.kill()
        for process in psutil.process_iter(["cmdline"]):
            if temporary in " ".join(process.info["cmdline"] or []):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        head.wait()
        shutil.rmtree(temporary, ignore_errors=True)


def machines_alive(address):
    """How many machines a cluster has now; asked by a process of its own, which joins the cluster."""
    code = (
        "import ray; from callboard.launch.launchers.ray.connection import connected\n"
        f"with connected('{address}', 1): print(sum(machine['Alive'] for machine in ray.nodes()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "oken" not in done.stderr, done.stderr
    return int(done.stdout.split()[-1])
