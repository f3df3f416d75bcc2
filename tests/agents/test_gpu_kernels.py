"""What every agent computes on the processor although there is a GPU, by the kernels that TensorFlow has."""

import dataclasses
import itertools
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES, SMALL_UPDATES
from gpu_kernels import graphs_as_written, nodes_of, nodes_run_by, without_kernel
from update_on_replicas import IMAGE, begin, distribute, made, random_sample

from callboard.agents.policies.batched_policy import BatchedPolicy
from callboard.agents.variables.weights import PackedVariables
from callboard.networks import precision
from callboard.networks.network_settings import ActorCriticSettings

ON_THE_PROCESSOR = {
    # PPO's order of the sequences in minibatches: what comes back is the seed, 16 bytes for each update, and what goes
    # to the GPU is 4 bytes for each sequence.
    "StatelessShuffle(int32)",
    "StatelessRandomGetKeyCounter(int64) of Bitcast",
}

OF_TEAMS = {"StridedSlice(int32, int32) of Cast"}
"""What a policy does with the actions of a team's members, an int32 each."""

CASES = {
    **{name: (name, {}) for name in SMALL_UPDATES},
    "ppo-minibatches": ("ppo", {"minibatches": 2}),
    "ppo-minibatches-images": ("ppo", {"minibatches": 2}),
    # The first of each agent; DrQ's has images.
    **{
        f"{name}-images": (name, {})
        for name in (next(iter(case.small_updates), "drq") for case in AGENT_CASES)
        if name != "drq"
    },
}
FAST = ("impala", "ppo-minibatches", "apex-images")
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]

# With oneDNN on, layers are fused, also where no graph may change; without AVX-512 they then fail in bfloat16.
WITH_ONEDNN = os.environ["TF_ENABLE_ONEDNN_OPTS"] != "0"
PRECISIONS = ["float32"] if WITH_ONEDNN else ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(precision, "_compiles_bfloat16", lambda: True)
    with graphs_as_written():
        yield


def small(name, computed_in):
    of, changes = CASES[name]
    agent, spec, length = made(of)
    network = dataclasses.replace(agent.network, precision=computed_in)
    if name.endswith("-images"):
        spec, network = spec._replace(observation=IMAGE), dataclasses.replace(network, normalize_observations=False)
    return dataclasses.replace(agent, network=network, **changes), spec, length


@pytest.mark.slow("daily")
@pytest.mark.parametrize("computed_in", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_learner_computes_on_the_processor(name, computed_in):
    agent, spec, length = small(name, computed_in)
    strategy = tf.distribute.get_strategy()
    networks, learner, layout = begin(agent, spec, strategy, None)
    iterator = distribute(strategy, [[random_sample(layout, length)]])
    graphs = nodes_run_by(lambda: learner.step(iterator))
    nodes = list(itertools.chain(*graphs))
    used = {node.op for node in nodes}
    assert "MatMul" in used
    # Of actors with critics, a vector is its own features, and no torso computes.
    has_torso = spec.observation is IMAGE or not isinstance(agent.network, ActorCriticSettings)
    assert (tf.bfloat16 in {tf.as_dtype(node.attr["T"].type) for node in nodes if node.op in ("MatMul", "Conv2D")}) == (
        computed_in == "bfloat16" and has_torso
    )
    expected = ON_THE_PROCESSOR if "StatelessShuffle" in used else set()
    assert without_kernel(graphs) == expected

    policy = agent.make_policy(networks, "train")
    acts = BatchedPolicy(policy, layout)._act.traced
    assert without_kernel(nodes_of(acts)) <= (OF_TEAMS if name.startswith(("qmix", "vdn")) else set())

    publishes = PackedVariables(policy.variables)
    graphs = nodes_run_by(publishes)
    assert without_kernel(graphs) == set()
    # One copy to the processor, of bytes.
    (copied,) = [node for nodes in graphs for node in nodes if node.op == "_Retval"]
    assert copied.attr["T"].type == tf.uint8.as_datatype_enum


@pytest.mark.slow
@pytest.mark.skipif(not WITH_ONEDNN, reason="the cases in bfloat16 run in this process")
def test_the_cases_of_half_precision():
    command = [sys.executable, "-m", "pytest", __file__, "-k", "bfloat16", "-p", "no:cacheprovider", "--no-header"]
    done = subprocess.run(
        command, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_results_that_are_copied_back_are_found():
    @tf.function(autograph=False)
    def function(x, number):
        # What is given is there already, and so are shapes.
        return tf.cast(x, tf.int32) + 1, number + tf.shape(x), tf.reshape(x, tf.shape(x)[:1])

    spec = tf.TensorSpec((None,), tf.float32)
    graphs = nodes_of(function.get_concrete_function(spec, tf.TensorSpec((1,), tf.int32)))
    assert without_kernel(graphs) == {"AddV2(int32) of Cast"}


def test_a_kernel_that_is_missing_is_found():
    @tf.function(autograph=False)
    def function(x):
        return tf.strings.length(x), tf.nn.relu(tf.cast(tf.strings.length(x), tf.bfloat16))

    found = without_kernel(nodes_of(function.get_concrete_function(tf.TensorSpec((2,), tf.string))))
    assert "Relu(bfloat16)" in found and any(name.startswith("StringLength") for name in found)
