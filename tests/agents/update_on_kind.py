"""What agents do on two devices of a kind, and on the processor beside them.

python update_on_kind.py <CPU or GPU> <agents, with commas>

Writes JSON by agent, see `outcomes`.
"""

import json
import sys

import numpy as np
import tensorflow as tf
import tree
from device_kinds import TWO_DEVICES
from update_on_replicas import begin, distribute, made, outcomes_of, own_copy, random_sample

from callboard.agents.policies.acting import timestep_spec, trace_layout
from callboard.agents.policies.batched_policy import BatchedPolicy, InferenceRequest
from callboard.data import Layout
from callboard.launch.processes.devices import GpuUse, make_strategy, take_devices

ENVIRONMENTS = 3


def outcomes(kind, agents):
    """By agent: its `updates` in float64 by device, what a `step` in float32 does, and how it `acts` by device."""
    devices = take_devices(TWO_DEVICES[kind], GpuUse(tf32=False))
    one = make_strategy(devices[-1:])
    strategies = {
        "processor": tf.distribute.OneDeviceStrategy("/cpu:0"),
        "one": one,
        "two": make_strategy(devices),
    }
    updates = outcomes_of(strategies, agents, [])
    return {
        name: {
            "updates": {where: updates[where]["update"][name] for where in strategies},
            "step": step(name, one),
            "acts": {device: acts(name, device) for device in ("CPU:0", devices[-1])},
        }
        for name in agents
    }


def step(name, strategy):
    """Whether a step in float32 changes the weights, its metrics, and the kinds of device that have the weights."""
    agent, spec, length = made(name)
    networks, learner, layout = begin(agent, spec, strategy, None)
    before = [own_copy(strategy, variable) for variable in networks.trainable_variables]
    metrics = learner.step(distribute(strategy, [[random_sample(layout, length)]])).metrics
    after = [own_copy(strategy, variable) for variable in networks.trainable_variables]
    return {
        "change": float(np.linalg.norm(np.concatenate(after) - np.concatenate(before))),
        "metrics": {key: float(value) for key, value in metrics.items()},
        "devices": sorted({variable.device.rpartition("device:")[2] for variable in networks.trainable_variables}),
    }


def acts(name, device):
    """Leaves of the actions and of what is recorded with them, for two actors in one pass, on a device."""
    agent, spec, _ = made(name)
    with tf.device(device):
        layout = Layout(spec, ENVIRONMENTS, actors=2, shards=1, replicas=1, seed=1, max_steps=100_000)
        tf.keras.utils.set_random_seed(1)
        networks = agent.make_networks(layout)
        layout = trace_layout(agent, layout, networks)
        policy = BatchedPolicy(agent.make_policy(networks, "train"), layout)
        rng = np.random.default_rng(3)

        def values(leaf):
            shape = (ENVIRONMENTS, *leaf.shape[1:])
            if leaf.dtype.is_floating:
                return rng.normal(size=shape).astype(leaf.dtype.as_numpy_dtype)
            return np.zeros(shape, leaf.dtype.as_numpy_dtype)

        requests = [
            InferenceRequest(
                tree.map_structure(values, timestep_spec(layout, None)),
                policy.initial_state(ENVIRONMENTS),
                np.arange(ENVIRONMENTS, dtype=np.int32) + ENVIRONMENTS * actor,
                np.array([5, actor], np.int32),
            )
            for actor in range(2)
        ]
        results = policy(requests)
    return [leaf.tolist() for result in results for leaf in tree.flatten((result.action, result.extras))]


if __name__ == "__main__":
    answer = outcomes(sys.argv[1], sys.argv[2].split(","))
    sys.stdout.write("\n" + json.dumps(answer))
