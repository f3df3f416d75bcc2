"""What one update of every agent does to its weights, on one replica or on several.

python update_on_replicas.py <numbers of devices, with commas>
python update_on_replicas.py <addresses of all learners, with commas> <rank>

Devices are set before TensorFlow starts, so this is a program.  It writes JSON: for every agent the change of weights
and of statistics, flat, and the metrics.  All is computed in float64.
"""

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from callboard.agents.acting import trace_layout
from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.ppo import Ppo
from callboard.agents.r2d2 import R2D2
from callboard.agents.sac import Sac
from callboard.data import ItemInfo, Layout, Record, Sample
from callboard.launch.devices import make_strategy, prepare_devices, share_first_learners_state
from callboard.specs import EnvironmentSpec

BATCH = 8
CLIPPED_TO = 0.05
OBSERVATION = dm_specs.Array((3,), np.float32)
DISCRETE = EnvironmentSpec(OBSERVATION, dm_specs.DiscreteArray(3))
CONTINUOUS = EnvironmentSpec(OBSERVATION, dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [1.0, 5.0]))

# With a large epsilon an optimizer's update tells how long a gradient was, which Adam's first one does not.
SMALL: dict[str, Any] = dict(batch_size=BATCH, hidden_sizes=(4,), optimizer_epsilon=1.0)
AGENTS = {
    "impala": (
        Impala(
            **SMALL,
            unroll_length=5,
            core="lstm",
            lstm_size=3,
            learning_rate=0.1,
            learning_rate_decay=False,
            max_gradient_norm=CLIPPED_TO,
            normalize_observations=True,
        ),
        DISCRETE,
        5,
    ),
    "apex": (
        Apex(**SMALL, n_step=3, learning_rate=0.1, max_gradient_norm=CLIPPED_TO, target_update_period=1),
        DISCRETE,
        3,
    ),
    "r2d2": (
        R2D2(
            **SMALL,
            n_step=2,
            burn_in=2,
            trace_length=6,
            period=3,
            lstm_size=3,
            stream_size=4,
            learning_rate=1.0,
            max_gradient_norm=CLIPPED_TO,
        ),
        DISCRETE,
        8,
    ),
    "ppo": (
        Ppo(
            **SMALL,
            unroll_length=5,
            epochs=1,
            minibatches=1,
            learning_rate=1.0,
            max_gradient_norm=CLIPPED_TO,
        ),
        DISCRETE,
        5,
    ),
    "ppo-gaussian": (
        Ppo(
            **SMALL,
            unroll_length=5,
            epochs=1,
            minibatches=1,
            learning_rate=1.0,
            core="lstm",
            lstm_size=3,
            max_gradient_norm=CLIPPED_TO,
        ),
        CONTINUOUS,
        5,
    ),
    "sac": (
        Sac(**SMALL, actor_learning_rate=0.1, critic_learning_rate=0.2, temperature_learning_rate=0.3),
        CONTINUOUS,
        1,
    ),
}


def random_sample(layout, length, seed=0):
    """A global batch whose first half holds few transitions that count, and whose second half all of them."""
    rng = np.random.default_rng(seed)
    few = np.arange(BATCH) < BATCH // 2

    def values(spec, leading):
        shape = (*leading, *spec.shape)
        if spec.dtype.is_bool:
            return np.zeros(shape, bool)
        if spec.dtype.is_integer:
            return rng.integers(3, size=shape).astype(spec.dtype.as_numpy_dtype)
        return rng.normal(size=shape).astype(spec.dtype.as_numpy_dtype)

    record: Record = tree.map_structure(lambda spec: values(spec, (length, BATCH)), layout.record)
    if not isinstance(layout.spec.action, dm_specs.DiscreteArray):
        action = rng.uniform(layout.spec.action.minimum, layout.spec.action.maximum, record.action.shape)
        record = record._replace(action=action.astype(np.float32))
    observation = tree.map_structure(lambda spec: values(spec, (length + 1, BATCH)), layout.record.observation)
    last = few & (rng.random((length + 1, BATCH)) < 0.4)
    terminated = few & ~last[:-1] & (rng.random((length, BATCH)) < 0.3)
    cut_off = few & (rng.random((length, BATCH)) < 0.2)
    first = np.concatenate([np.zeros((1, BATCH), bool), terminated | cut_off | last[:-1]])
    record = record._replace(
        observation=observation,
        first=first,
        last=last,
        discount=np.where(terminated, 0.0, 1.0).astype(np.float32),
        version=np.zeros_like(record.version),
    )
    state = tree.map_structure(lambda spec: values(spec, (BATCH,)), layout.state)
    info = ItemInfo(
        key=np.arange(BATCH, dtype=np.uint64),
        shard=np.zeros(BATCH, np.int32),
        probability=rng.uniform(0.01, 0.1, BATCH),
        items=np.full(BATCH, 50, np.int64),
    )
    return Sample(record, state, info)


def share(sample, replica, replicas):
    def cut(axis):
        return lambda leaf: np.split(leaf, replicas, axis)[replica]

    return Sample(
        tree.map_structure(cut(1), sample.record),
        tree.map_structure(cut(0), sample.state),
        tree.map_structure(cut(0), sample.info),
    )


def update(agent, spec, length, strategy, rank):
    """The change of weights and statistics in one update, flat, and its metrics; `rank` is that of one of two learners.

    The second learner begins as one that found no checkpoint: with other weights.
    """
    replicas = strategy.num_replicas_in_sync
    layout = Layout(spec, BATCH, actors=1, shards=1, replicas=replicas, seed=1, max_steps=100_000)
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        networks = agent.make_networks(layout)
        learner = agent.make_learner(networks, strategy, layout)
    if replicas > 1:
        for variable in networks.variables if rank else ():
            variable.assign(tf.ones_like(variable))
        share_first_learners_state(strategy, rank or 0, {"learner": learner, "networks": networks})
    sample = random_sample(trace_layout(agent, layout, networks), length)

    def shares(context):
        own = replicas // context.num_input_pipelines
        first = own * context.input_pipeline_id
        parts = [share(sample, replica, replicas) for replica in range(first, first + own)]
        parts = tree.map_structure(lambda *leaves: np.stack(leaves), *parts)
        return tf.data.Dataset.from_tensor_slices(parts).repeat()

    iterator = iter(strategy.distribute_datasets_from_function(shares))
    before = [variable.numpy() for variable in networks.variables]
    metrics = learner.step(iterator).metrics
    # Apart, because statistics, such as the number of observations, change by more than weights do.
    weights, statistics = [], [np.zeros(0)]
    for variable, old in zip(networks.variables, before, strict=True):
        copies = strategy.experimental_local_results(variable)
        for copy in copies:
            np.testing.assert_array_equal(copy, copies[0])
        change = (copies[0].numpy().astype(np.float64) - old).ravel()
        (weights if variable.trainable else statistics).append(change)
    return {
        "weights": np.concatenate(weights).tolist(),
        "statistics": np.concatenate(statistics).tolist(),
        "metrics": {name: float(value) for name, value in metrics.items()},
    }


def main():
    tf.keras.backend.set_floatx("float64")
    given, *further = sys.argv[1:]
    rank = int(further[0]) if further else None
    if rank is not None:
        strategies = {"learners": make_strategy(["CPU:0"], given.split(","), rank)}
    else:
        counts = [int(count) for count in given.split(",")]
        devices = [f"CPU:{index}" for index in range(max(counts))]
        prepare_devices(devices)
        strategies = {str(count): make_strategy(devices[:count]) for count in counts}
    updates = {
        name: {agent: update(*case, strategy, rank) for agent, case in AGENTS.items()}
        for name, strategy in strategies.items()
    }
    sys.stdout.write(json.dumps(updates))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
