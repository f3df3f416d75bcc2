"""Nodes in Ray actors: calls, errors, addresses and restarts."""

import shutil
import subprocess
import sys
import tempfile
import time

import pytest
import ray
from host_network import HostNetwork, why_not

from callboard.errors import CallboardError
from callboard.launch.launchers.ray.node_actors import RayHandle, start_node
from callboard.launch.nodes.node import Node, NodeRules, Unreachable

pytestmark = pytest.mark.slow

LISTENING = """
import socket, sys
from callboard.launch.launchers.ray.node_actors import NodeHost
from callboard.launch.nodes.node import Node, NodeRules

class Listening(Node):
    def setup(self):
        self._server = socket.create_server(("::", self.context.port), family=socket.AF_INET6, dualstack_ipv6=True)
        self.context.guard.close(self.context.port)
        print(self.context.port, flush=True)

    def step(self):
        self.context.stop.wait(0.05)

host = NodeHost("listening/0")
host.start(Listening, NodeRules(stop_order=0))
sys.stdin.read()
"""


class Counting(Node):
    """Counts calls; fails in its own thread on request."""

    served = ("count", "fail")

    def __init__(self, context, first):
        super().__init__(context)
        self._count = first
        self._fails = False

    def count(self, more):
        self._count += more
        return self._count, self.context.name

    def fail(self):
        self._fails = True

    def step(self):
        if self._fails:
            raise CallboardError("it was requested to fail")
        self.context.stop.wait(0.05)


@pytest.fixture(scope="module")
def handle():
    directory = tempfile.mkdtemp(prefix="r", dir="/tmp")
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
    # By value, because workers cannot import the modules of tests.
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Counting"]))
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 4}
    yield start_node(options, Counting, "counting/0", rules=NodeRules(stop_order=0), first=5)
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


def wait_until(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_calls_a_node_also_after_its_actor_was_restarted(handle):
    before = handle.address()
    assert handle.client(timeout=30.0).count(2) == (7, "counting/0")
    ray.kill(handle.actor, no_restart=False)
    wait_until(lambda: handle.address() != before)
    assert handle.client(timeout=30.0).count(1) == (6, "counting/0")


def test_a_handle_from_a_machine_with_another_clock_finds_a_node_that_was_restarted(handle):
    before = handle.address()
    handle._lookup.restart(1e6)
    sent = ray.cloudpickle.loads(ray.cloudpickle.dumps(handle))
    handle._lookup.restart(0.25)
    assert sent.address() == before
    ray.kill(handle.actor, no_restart=False)
    wait_until(lambda: sent.address() != before)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_other_machines_of_a_cluster_reach_a_node():
    network = HostNetwork(["here", "other"])
    command = [*network.inside("here"), sys.executable, "-c", LISTENING]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        assert network.reached("other", "here", [port]) == [port]
    finally:
        process.communicate("")
        network.close()


def test_a_call_that_takes_too_long_raises_unreachable(handle):
    with pytest.raises(Unreachable):
        handle.client(timeout=0.2).wait(5.0)
    with pytest.raises(CallboardError, match=r"counting/0 has not answered for 0 s; check with `ray status`"):
        handle.call_until_answered("wait", 5.0, seconds=0.3)


def test_raises_the_error_with_which_a_node_has_failed(handle):
    handle.client(timeout=30.0).fail()
    with pytest.raises(CallboardError, match="it was requested to fail"):
        handle.client(timeout=10.0).wait(5.0)
    ray.kill(handle.actor)
    with pytest.raises(ray.exceptions.ActorDiedError):
        # Ray ends it in the background.
        wait_until(lambda: not RayHandle(handle.name, handle.actor).call_until_answered("count", 1))
