"""The niceness that Ray gives to the processes of nodes, as the page on Ray describes it."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os
import shutil
import tempfile

import ray

directory = tempfile.mkdtemp(prefix="r", dir="/tmp")
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
print(ray.get(ray.remote(lambda: os.nice(0)).remote()) - os.nice(0))
ray.shutdown()
shutil.rmtree(directory, ignore_errors=True)
"""


@pytest.mark.parametrize("environment, expected", [({}, 15), ({"RAY_worker_niceness": "0"}, 0)])
def test_ray_makes_its_processes_nice_unless_its_environment_forbids_it(environment, expected):
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_worker_niceness"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**inherited, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == expected
