"""An update does not depend on how many devices, or how many learners, share its batch, nor on others in its call."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
from agent_cases import SMALL_UPDATES
from slow_cases import values_in_session
from small_updates import CLIPPED_TO

from callboard.agents.metric_names import BONUS_METRICS, LEARNER_METRICS
from callboard.agents.registry import agent_class

PROGRAM = pathlib.Path(__file__).with_name("update_on_replicas.py")
TESTS = str(PROGRAM.parents[1])
AGENTS = tuple(SMALL_UPDATES)
pytestmark = pytest.mark.timeout(3000)  # Some programs compute for all cases of the session.
IN_CALLS = [name for name, (case, _) in SMALL_UPDATES.items() if case.updates_per_call]
WITH_PRIORITIES = [name for name, (case, _) in SMALL_UPDATES.items() if case.prioritized]
BATCH = 8
UPDATES = 6


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")]))},
    )


def updates_of(process):
    try:
        output, errors = process.communicate(timeout=2000)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


# What all agents share is tested fast in `test_gradient_step.py` and `losses/test_replicas.py`.
@pytest.fixture(scope="module", params=[pytest.param(agent, marks=pytest.mark.slow) for agent in AGENTS])
def agent(request):
    return request.param


@pytest.fixture(scope="module")
def on_devices(agent, on_two_devices):
    return on_two_devices(PROGRAM, "outcomes_on_devices", ["1", "2"], [agent])


@pytest.fixture
def updates(agent, on_devices):
    """An agent's update by the number of devices."""
    return {devices: outcome["update"][agent] for devices, outcome in on_devices.items()}


@pytest.fixture(scope="module")
def on_four(request):
    return updates_of(start("4", "--updates-of", ",".join(values_in_session(request, "agent"))))["4"]


@pytest.fixture(scope="module")
def all_in_calls(request, on_two_devices):
    agents = values_in_session(request, "agent")
    outcomes = on_two_devices(PROGRAM, "outcomes_on_devices", ["1", "2"], (), agents)
    return {devices: outcome["calls"] for devices, outcome in outcomes.items()}


@pytest.fixture(scope="module")
def on_learners(request):
    found = values_in_session(request, "agent")
    in_calls = [agent for agent in found if agent in IN_CALLS]
    addresses = ",".join(f"localhost:{port}" for port in free_ports(2))
    agents = [f"--updates-of={','.join(found)}", f"--calls-of={','.join(in_calls)}"]
    processes = [start(addresses, "--rank", rank, *agents) for rank in range(2)]
    return [updates_of(process)["learners"] for process in processes]


def assert_alike(update, one):
    assert np.linalg.norm(one["weights"]) > 1e-3
    for part in ("weights", "statistics"):
        difference = np.subtract(update[part], one[part])
        assert np.linalg.norm(difference) <= 1e-6 * np.linalg.norm(one[part])
    assert update["metrics"] == pytest.approx(one["metrics"], rel=1e-6, abs=1e-9)


def assert_same_calls(calls, on_one, with_priorities, items=range(BATCH)):
    """Compares what several updates do in one call with what they do one by one, and with the same on one device.

    Args:
      calls: as by `calls` of the program.
      on_one: of one device.
      with_priorities: whether the agent has some.
      items: positions in their batch of the items that these replicas were given.
    """
    together = calls["together"]
    assert together["steps"] == UPDATES
    # To the last bit.
    assert together == calls["one by one"]
    np.testing.assert_allclose(together["weights"], on_one["together"]["weights"], rtol=1e-6, atol=1e-9)
    assert together["metrics"] == pytest.approx(on_one["together"]["metrics"], rel=1e-6, abs=1e-9)
    if not with_priorities:
        assert together["priorities"] == []
        return
    key, shard, priority, _ = together["priorities"]
    assert key == [100 * batch + item for batch in range(UPDATES) for item in items]
    assert shard == [batch for batch in range(UPDATES) for _ in items]
    priority_of = dict(zip(on_one["together"]["priorities"][0], on_one["together"]["priorities"][2], strict=True))
    assert priority == pytest.approx([priority_of[one] for one in key], rel=1e-6, abs=1e-7)
    assert len(set(priority)) > len(key) // 2


def test_devices(updates):
    assert updates["1"]["metrics"].get("gradient_norm", 1.0) > CLIPPED_TO
    assert_alike(updates["2"], updates["1"])


def test_metrics_are_those_of_the_registry(updates, agent):
    name = agent.partition("-")[0]
    metrics = (*LEARNER_METRICS, *(BONUS_METRICS if agent.endswith(("rnd", "icm")) else ()))
    registered = {metric.name for metric in metrics if not metric.agents or name in metric.agents}
    if agent.startswith("apex") and agent != "apex-categorical":
        registered -= {"support_ends"}
    assert set(updates["1"]["metrics"]) == registered


def test_what_is_learned_from_is_read_before_it_changes(updates):
    """Two devices in which it did not were seen to differ about once in a thousand updates."""
    assert [updates[devices]["unordered"] for devices in ("1", "2")] == [[], []]


def test_a_reward_that_is_not_finite_is_found_in_the_loss_of_its_learner_step(updates, agent):
    case, _ = SMALL_UPDATES[agent]
    for update in updates.values():
        if agent_class(case.name)().reward_discount() is None:
            assert update["spoilt"] == ""
        else:
            assert update["spoilt"].startswith(f"the {case.first_loss} is NaN at learner step 2 (agent test): ")


@pytest.mark.slow
def test_four_devices(updates, on_four, agent):
    assert_alike(on_four["update"][agent], updates["1"])


@pytest.mark.slow
def test_learners(updates, on_learners, agent):
    for learner in on_learners:
        assert_alike(learner["update"][agent], updates["1"])
    # And the two have the same weights, to the last bit.
    assert on_learners[0]["update"][agent]["weights"] == on_learners[1]["update"][agent]["weights"]


def assert_in_order(chain, shares):
    """Follows a chain through all batches: what these shares of them must have been given, and left."""
    x, after, expected = 0.0, [], []
    for number, batch in enumerate(np.arange(UPDATES * BATCH).reshape(UPDATES, BATCH)):
        expected += [(key, key, x + np.sqrt(key)) for share in shares for key in np.split(batch, 2)[share]]
        x = 2 * x + np.sqrt(batch).sum()
        if number in (UPDATES // 2 - 1, UPDATES - 1):
            after.append(x)
    np.testing.assert_allclose(chain["x"], after, rtol=1e-12)
    *priorities, env = chain["priorities"]
    np.testing.assert_allclose(np.transpose(priorities), expected, rtol=1e-12)
    assert env == []


def test_updates_in_a_call_follow_each_other(on_devices):
    for outcome in on_devices.values():
        assert_in_order(outcome["chain"], shares=[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("agent", IN_CALLS)
def test_several_updates_in_a_call_of_every_agent(all_in_calls, agent):
    for calls in all_in_calls.values():
        assert_same_calls(calls[agent], all_in_calls["1"][agent], agent in WITH_PRIORITIES)


@pytest.mark.slow
@pytest.mark.parametrize("agent", IN_CALLS)
def test_several_updates_in_a_call_of_two_learners(all_in_calls, on_learners, agent):
    on_one = all_in_calls["1"][agent]
    for learner, items in zip(on_learners, (range(BATCH // 2), range(BATCH // 2, BATCH)), strict=True):
        assert_same_calls(learner["calls"][agent], on_one, agent in WITH_PRIORITIES, items)
    weights = [learner["calls"][agent]["together"]["weights"] for learner in on_learners]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_updates_in_a_call_of_two_learners_follow_each_other(on_learners):
    for rank, learner in enumerate(on_learners):
        assert_in_order(learner["chain"], shares=[rank])
