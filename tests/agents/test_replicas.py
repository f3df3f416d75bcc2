"""An update does not depend on how many devices, or on how many learners, share its batch."""

import json
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = pathlib.Path(__file__).with_name("update_on_replicas.py")
AGENTS = ("impala", "apex", "r2d2", "ppo", "ppo-gaussian", "sac")
CLIPPED_TO = 0.05


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def updates_of(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def on_devices():
    return updates_of(start("1,2"))


@pytest.fixture(scope="module")
def on_four():
    return updates_of(start(4))["4"]


@pytest.fixture(scope="module")
def on_learners():
    addresses = ",".join(f"localhost:{port}" for port in free_ports(2))
    processes = [start(addresses, rank) for rank in range(2)]
    return [updates_of(process)["learners"] for process in processes]


def assert_alike(update, one):
    assert np.linalg.norm(one["weights"]) > 1e-3
    for part in ("weights", "statistics"):
        difference = np.subtract(update[part], one[part])
        assert np.linalg.norm(difference) <= 1e-6 * np.linalg.norm(one[part])
    assert update["metrics"] == pytest.approx(one["metrics"], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("agent", AGENTS)
def test_devices(on_devices, agent):
    one = on_devices["1"][agent]
    assert one["metrics"].get("gradient_norm", 1.0) > CLIPPED_TO
    assert_alike(on_devices["2"][agent], one)


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_four_devices(on_devices, on_four, agent):
    assert_alike(on_four[agent], on_devices["1"][agent])


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_learners(on_devices, on_learners, agent):
    for updates in on_learners:
        assert_alike(updates[agent], on_devices["1"][agent])
    # And the two have the same weights, to the last bit.
    assert on_learners[0][agent]["weights"] == on_learners[1][agent]["weights"]
