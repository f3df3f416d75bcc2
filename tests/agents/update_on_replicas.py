"""What updates of every agent do to its weights, on one replica or on several.

python update_on_replicas.py <numbers of devices, with commas> [--updates-of <agents, with commas>] [--calls-of ..]
python update_on_replicas.py <addresses of all learners, with commas> --rank <rank> [--updates-of ..] [--calls-of ..]

Devices are set before TensorFlow starts, so this is a program.  It writes JSON: `update` and `calls` of the agents that
are requested, and `chain`, see `outcomes_of`.
"""

import argparse
import collections
import dataclasses
import json
import sys

import numpy as np
import tensorflow as tf
import tree
from agent_cases import SMALL_UPDATES
from dm_env import specs as dm_specs
from tensorflow.python.eager import context as eager

from callboard.agents.learning.gradient_learner import GradientLearner
from callboard.agents.learning.gradient_step import LossOutput, Objective
from callboard.agents.policies.acting import trace_layout
from callboard.agents.registry import agent_class
from callboard.agents.variables.finite_checks import LossCheck, NotFiniteError
from callboard.agents.variables.frozen_weights import FrozenWeights
from callboard.data import ItemInfo, Layout, Record, Sample
from callboard.launch.processes.devices import make_strategy, prepare_devices, share_first_learners_state
from callboard.networks.network import Inputs
from callboard.settings.nested_settings import from_values, with_values
from callboard.specs import EnvironmentSpec

BATCH = 8
UPDATES = 3
IMAGE = dm_specs.BoundedArray((36, 36, 1), np.uint8, 0, 255)
OBSERVATION = dm_specs.Array((3,), np.float32)
DISCRETE = EnvironmentSpec(OBSERVATION, dm_specs.DiscreteArray(3))
CONTINUOUS = EnvironmentSpec(OBSERVATION, dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [1.0, 5.0]))


def made(name):
    """A small agent of the table, the specs of its environment, and the number of transitions in its items."""
    case, small = SMALL_UPDATES[name]
    agent = from_values(agent_class(case.name), small.settings)
    if getattr(agent, "updates_per_call", 1) is None:
        agent = dataclasses.replace(agent, updates_per_call=1)
    spec = CONTINUOUS if small.continuous else DISCRETE
    return agent, spec._replace(observation=IMAGE) if small.images else spec, small.transitions


def random_sample(layout, length, seed=0):
    """A global batch whose first half holds few valid transitions, and whose second half holds valid ones alone."""
    rng = np.random.default_rng(seed)
    few = np.arange(BATCH) < BATCH // 2

    def values(spec, leading):
        shape = (*leading, *spec.shape)
        if spec.dtype.is_bool:
            return np.zeros(shape, bool)
        if spec.dtype.is_integer:
            return rng.integers(256 if spec.dtype == tf.uint8 else 3, size=shape).astype(spec.dtype.as_numpy_dtype)
        return rng.normal(size=shape).astype(spec.dtype.as_numpy_dtype)

    record: Record = tree.map_structure(lambda spec: values(spec, (length, BATCH)), layout.record)
    if getattr(layout.spec.action, "dtype", np.dtype(int)).kind == "f":
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
        key=np.arange(BATCH, dtype=np.uint64) + 100 * seed,
        shard=np.full(BATCH, seed, np.int32),
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
        tree.map_structure(cut(1), sample.discounted_return),
    )


def begin(agent, spec, strategy, rank):
    """Networks, learner and layout on a strategy; `rank` is that of one of two learners.

    The second learner begins as one that found no checkpoint: with other weights.
    """
    layout = Layout(spec, BATCH, actors=1, shards=1, replicas=strategy.num_replicas_in_sync, seed=1, max_steps=100_000)
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        networks = agent.make_networks(layout)
        learner = agent.make_learner(networks, strategy, layout)
    if layout.replicas > 1:
        for variable in networks.variables if rank else ():
            variable.assign(tf.ones_like(variable))
        share_first_learners_state(strategy, rank or 0, {"learner": learner, "networks": networks})
    return networks, learner, trace_layout(agent, layout, networks)


def distribute(strategy, calls):
    """An iterator over what the replicas are given: for each call one batch, or several along a first axis."""
    replicas = strategy.num_replicas_in_sync

    def shares(context):
        own = replicas // context.num_input_pipelines
        first = own * context.input_pipeline_id
        parts = [
            stacked([share(sample, replica, replicas) for sample in samples])
            for samples in calls
            for replica in range(first, first + own)
        ]
        return tf.data.Dataset.from_tensor_slices(tree.map_structure(lambda *leaves: np.stack(leaves), *parts))

    return iter(strategy.distribute_datasets_from_function(shares))


def stacked(samples):
    return tree.map_structure(lambda *leaves: np.stack(leaves), *samples) if len(samples) > 1 else samples[0]


def own_copy(strategy, variable):
    """The value of a variable, the same on all replicas of this process."""
    copies = strategy.experimental_local_results(variable)
    for copy in copies:
        np.testing.assert_array_equal(copy, copies[0])
    return copies[0].numpy().astype(np.float64).ravel()


def update(agent, spec, length, strategy, rank):
    """The change of weights and of statistics in one update, flat, its metrics, and reads that may come too late."""
    networks, learner, layout = begin(agent, spec, strategy, rank)
    iterator = distribute(strategy, [[random_sample(layout, length)]])
    before = [own_copy(strategy, variable) for variable in networks.variables]
    eager.context().enable_graph_collection()
    metrics = learner.step(iterator).metrics
    graphs = [one.post_optimization_graph for one in eager.context().export_run_metadata().function_graphs]
    eager.context().disable_graph_collection()
    # Apart, because statistics, such as the number of observations, change by more than weights do.
    weights, statistics = [], [np.zeros(0)]
    for variable, old in zip(networks.variables, before, strict=True):
        (weights if variable.trainable else statistics).append(own_copy(strategy, variable) - old)
    return {
        "weights": np.concatenate(weights).tolist(),
        "statistics": np.concatenate(statistics).tolist(),
        "metrics": {name: float(value) for name, value in metrics.items()},
        "unordered": unordered(max(graphs, key=lambda graph: len(graph.node))),
        "spoilt": said_of_a_spoilt_update(learner, random_sample(layout, length), strategy),
    }


def said_of_a_spoilt_update(learner, sample, strategy):
    """What the check of losses says of three further updates, the second of which has a reward that is NaN.

    With several replicas that is in the share of the last one.
    """
    losses = LossCheck()
    for step, reward in enumerate((1.0, np.nan, 1.0), start=1):
        record = sample.record
        rewards = record.reward.copy()
        # At every time, since the first ones may only refresh a recurrent state.
        rewards[:, -1] = reward
        # PPO learns from the newest weights' alone.
        record = record._replace(reward=rewards, version=np.full_like(record.version, step))
        losses.add(step, learner.step(distribute(strategy, [[sample._replace(record=record)]])))
    try:
        losses.check()
    except NotFiniteError as error:
        return str(error.advised("test", step))
    return ""


def unordered(graph):
    """Reads of variables, in a graph as it is run, that may come before as well as after an update of theirs."""
    needs = {node.name: [name.removeprefix("^").split(":")[0] for name in node.input] for node in graph.node}
    reads, updates = collections.defaultdict(list), collections.defaultdict(list)
    for node in graph.node:
        if node.op == "ReadVariableOp":
            reads[needs[node.name][0]].append(node.name)
        elif node.op.startswith("Assign"):
            updates[needs[node.name][0]].append(node.name)

    def comes_after(name):
        found, new = set(), [name]
        while new:
            further = set(needs[new.pop()]) - found
            found |= further
            new += further
        return found

    before = {name: comes_after(name) for names in updates.values() for name in names}
    return [
        f"{read} and {one}"
        for variable, names in updates.items()
        for one in names
        for read in reads[variable]
        if read not in before[one] and one not in comes_after(read)
    ]


def calls(agent, spec, length, strategy, rank):
    """All variables of the networks and all priorities after the same updates: several to a call, and one by one."""
    outcomes = {}
    # Where there is a target network, it is updated in the middle of a call.
    period = {"target_update_period": 2} if hasattr(agent, "target_update_period") else {}
    for name, updates in (("together", UPDATES), ("one by one", 1)):
        of_kind = dataclasses.replace(agent, updates_per_call=updates, **period)
        networks, learner, layout = begin(of_kind, spec, strategy, rank)
        samples = [random_sample(layout, length, seed) for seed in range(2 * UPDATES)]
        iterator = distribute(strategy, [samples[at : at + updates] for at in range(0, len(samples), updates)])
        outputs = [learner.step(iterator) for _ in range(len(samples) // updates)]
        given = [one.priorities for one in outputs if one.priorities is not None]
        outcomes[name] = {
            "weights": np.concatenate([own_copy(strategy, variable) for variable in networks.variables]).tolist(),
            "priorities": [np.concatenate(leaves).tolist() for leaves in zip(*given, strict=True)],
            "metrics": {name: float(value) for name, value in outputs[-1].metrics.items()},
            "steps": sum(one.steps for one in outputs),
        }
    return outcomes


def chain(strategy):
    """x <- 2 x + the sum of the batch, which shows any other order, several to a call; an item's priority is x + its
    value.  Gives x after each call, and all priorities."""
    with strategy.scope():
        x = tf.Variable(0.0, dtype=tf.float64)

        optimizer = tf.keras.optimizers.SGD(1.0, jit_compile=False)

        def loss(sample):
            values = sample.record.reward[0]
            # A gradient step of length 1 on a loss that is its own change.
            own = -(x**2) / (2 * strategy.num_replicas_in_sync) - x * tf.reduce_sum(values)
            return LossOutput(own, {}, priorities=x + values)

        learner = GradientLearner(loss, [Objective("loss", [x], optimizer)], strategy, updates_per_call=UPDATES)
    items = np.arange(2 * UPDATES * BATCH).reshape(2 * UPDATES, BATCH)
    infos = [
        ItemInfo(key=of_batch.astype(np.uint64), shard=of_batch, probability=of_batch, items=of_batch)
        for of_batch in items
    ]
    version = np.zeros((1, BATCH, 2), np.int32)
    records = [Record((), (), (), (), np.sqrt(of_batch)[None], (), (), version) for of_batch in items]
    samples = [Sample(record, (), info) for record, info in zip(records, infos, strict=True)]
    iterator = distribute(strategy, [samples[:UPDATES], samples[UPDATES:]])
    given, values = [], []
    for _ in range(2):
        given.append(learner.step(iterator).priorities)
        values.append(own_copy(strategy, x)[0])
    return {"x": values, "priorities": [np.concatenate(leaves).tolist() for leaves in zip(*given, strict=True)]}


def outcomes_of(strategies, updates_of, calls_of, rank=None):
    """`update` and `calls` of these agents, and `chain`, on each strategy; all is computed in float64."""
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx("float64")
    try:
        return {
            name: {
                "update": {agent: update(*made(agent), strategy, rank) for agent in updates_of},
                "chain": chain(strategy),
                "calls": {agent: calls(*made(agent), strategy, rank) for agent in calls_of},
            }
            for name, strategy in strategies.items()
        }
    finally:
        tf.keras.backend.set_floatx(before)


def outcomes_on_devices(counts, updates_of, calls_of=()):
    """`outcomes_of` by numbers of devices."""
    devices = [f"CPU:{index}" for index in range(max(map(int, counts)))]
    prepare_devices(devices)
    return outcomes_of({count: make_strategy(devices[: int(count)]) for count in counts}, updates_of, calls_of)


def ranges_on_devices(counts, agents):
    """The lowest and highest value of each agent's range after each of its learner steps, by numbers of devices.

    What moves an end is in one replica's share: rewards of one environment, which grow from step to step.
    """
    devices = [f"CPU:{index}" for index in range(max(map(int, counts)))]
    prepare_devices(devices)

    def ends(name, strategy):
        agent, spec, length = made(name)
        following = dataclasses.replace(agent, value_min=None, value_max=None)
        networks, learner, layout = begin(following, spec, strategy, None)
        samples = [random_sample(layout, length, seed) for seed in range(2 * UPDATES)]
        for number, sample in enumerate(samples):
            reward = np.where(np.arange(BATCH) == number % BATCH, 4.0**number, 1.0) * np.abs(sample.record.reward)
            record = sample.record._replace(reward=reward.astype(np.float32))
            found = (3 * record.reward).astype(np.float32)
            learner.step(distribute(strategy, [[sample._replace(record=record, discounted_return=found)]]))
            for variable in networks.variables:
                # Layers move with their range, on each device.
                own_copy(strategy, variable)
            yield [float(own_copy(strategy, end)[0]) for end in networks.value_range.variables]

    strategies = {count: make_strategy(devices[: int(count)]) for count in counts}
    return {count: {name: list(ends(name, strategy)) for name in agents} for count, strategy in strategies.items()}


def change_of_outputs(name, strategy, freeze=()):
    """The greatest change of an agent's outputs in three steps that move the statistics, and its network."""
    agent, spec, length = made(name)
    agent = with_values(agent, {"optimizer.learning_rate": 1e-12, "network.normalize_observations": True})
    networks, learner, layout = begin(agent, spec, strategy, None)
    if freeze:
        FrozenWeights(networks, freeze)
        with strategy.scope():
            learner = agent.make_learner(networks, strategy, layout)
    network = getattr(networks, "online", getattr(networks, "network", networks))
    rng = np.random.default_rng(0)
    for variable in network.trainable_variables:
        # Output layers begin so small that nothing would show.
        variable.assign(rng.normal(size=variable.shape, scale=0.5))
    seen = Inputs(tf.constant(rng.normal(size=(20, 3)), tf.float32))
    outputs, scales = [], []
    for step in range(4):
        record = random_sample(layout, length, step).record
        version = np.full_like(record.version, step)
        record = record._replace(observation=(1 + 0.2 * step) * record.observation, version=version)
        learner.step(distribute(strategy, [[random_sample(layout, length)._replace(record=record)]]))
        outputs.append(network.step(seen, network.initial_state(20), tf.ones(20, tf.bool))[0])
        scales.append(network.normalizer.divide_by_deviation(tf.ones((1, 3))).numpy())
    assert not np.allclose(scales[0], scales[-1], rtol=0.1)
    pairs = zip(tf.nest.flatten(outputs[-1]), tf.nest.flatten(outputs[0]), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs), network


def changes_on_devices(counts, agents):
    """`change_of_outputs` of agents by numbers of devices."""
    devices = [f"CPU:{index}" for index in range(max(map(int, counts)))]
    prepare_devices(devices)
    strategies = {count: make_strategy(devices[: int(count)]) for count in counts}
    return {
        count: {name: change_of_outputs(name, strategy)[0] for name in agents} for count, strategy in strategies.items()
    }


def names(text):
    return text.split(",") if text else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("where", type=names)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--updates-of", type=names, default=[])
    parser.add_argument("--calls-of", type=names, default=[])
    given = parser.parse_args()
    if given.rank is None:
        outcomes = outcomes_on_devices(given.where, given.updates_of, given.calls_of)
    else:
        strategies = {"learners": make_strategy(["CPU:0"], given.where, given.rank)}
        outcomes = outcomes_of(strategies, given.updates_of, given.calls_of, given.rank)
    sys.stdout.write(json.dumps(outcomes))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
