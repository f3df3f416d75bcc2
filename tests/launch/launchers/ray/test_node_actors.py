"""Nodes in Ray actors: calls, errors, addresses and restarts."""

import shutil
import tempfile
import time

import pytest
import ray

from callboard.errors import CallboardError
from callboard.launch.launchers.ray.node_actors import RayHandle, start_node
from callboard.launch.nodes.node import Node, NodeRules, Unreachable

pytestmark = pytest.mark.slow


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
        RayHandle(handle.name, handle.actor).call_until_answered("count", 1)
