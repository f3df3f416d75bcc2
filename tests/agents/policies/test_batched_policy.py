"""Acting for several actors at once gives what each would do alone."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from callboard.agents import agent_class
from callboard.agents.agent_names import AGENTS
from callboard.agents.policies.acting import CompiledPolicy, policy_seed
from callboard.agents.policies.batched_policy import BatchedPolicy, InferenceRequest
from callboard.data import Layout, Timestep
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields, from_values
from callboard.specs import EnvironmentSpec

BATCH = 3
SEED = 5
DISCRETE = dm_specs.DiscreteArray(4)
CONTINUOUS = dm_specs.BoundedArray((2,), np.float32, -1.0, 1.0)
SMALL = {
    "network.hidden_sizes": (8,),
    "network.stream_size": 0,
    "network.head_sizes": (),
    "network.core": "lstm",
    "network.lstm_size": 6,
    "hold": 3,
}


def layout_of(action):
    spec = EnvironmentSpec(dm_specs.Array((4,), np.float32), action)
    return Layout(spec=spec, envs_per_actor=BATCH, actors=3, shards=1, replicas=1, seed=SEED, max_steps=1000)


def timesteps(rng, number):
    """Timesteps of one actor, with beginnings and ends of episodes."""
    for t in range(number):
        yield Timestep(
            observation=rng.normal(size=(BATCH, 4)).astype(np.float32),
            reward=rng.normal(size=BATCH).astype(np.float32),
            discount=np.ones(BATCH, np.float32),
            first=np.full(BATCH, t == 0) | (rng.random(BATCH) < 0.1),
            last=np.zeros(BATCH, bool),
        )


FAST = ("impala", "r2d2")
OF_CONTINUOUS_ACTIONS = ("sac", "td3", "td3_bc", "d4pg", "dmpo")
CASES = [(name, CONTINUOUS if name in OF_CONTINUOUS_ACTIONS else DISCRETE) for name in AGENTS] + [("ppo", CONTINUOUS)]


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "name, action", [pytest.param(*case, marks=() if case[0] in FAST else pytest.mark.slow) for case in CASES]
)
def test_a_merged_batch_gives_what_each_actor_would_do_alone(name, action):
    fields = declared_fields(agent_class(name))
    agent = from_values(agent_class(name), {key: value for key, value in SMALL.items() if key in fields})
    layout = layout_of(action)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    policy = agent.make_policy(networks, "train")
    for variable in policy.variables:
        if variable.dtype == tf.float32:
            variable.assign_add(0.3 * tf.random.stateless_normal(variable.shape, (1, len(variable.shape))))
        elif variable.dtype == tf.bool:
            variable.assign(tf.ones_like(variable))
    actors = (0, 2)
    slots = [np.arange(actor * BATCH, (actor + 1) * BATCH, dtype=np.int32) for actor in actors]
    alone = [CompiledPolicy(policy, layout, own, SEED) for own in slots]
    merged = BatchedPolicy(policy, layout)
    states = [merged.initial_state(BATCH) for _ in actors]
    streams = [timesteps(np.random.default_rng(actor), 12) for actor in actors]
    # The first actor is ahead by two timesteps.
    for _ in range(2):
        alone[0](next(streams[0]))
    states[0] = tree.map_structure(lambda leaf: leaf.numpy(), alone[0].state)
    chosen = []
    for t, pair in enumerate(zip(*streams, strict=False)):
        numbers = (t + 2, t)
        requests = [
            InferenceRequest(timestep, state, own, np.array([policy_seed(SEED, int(own[0])), number], np.int32))
            for timestep, state, own, number in zip(pair, states, slots, numbers, strict=True)
        ]
        results = merged(requests)
        for actor, (timestep, result) in enumerate(zip(pair, results, strict=True)):
            action, extras = alone[actor](timestep)
            for found, wanted in zip(result, (action, extras, alone[actor].state), strict=True):
                tree.map_structure(lambda f, w: np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-5), found, wanted)
            states[actor] = result.state
            chosen.append(result.action)
    assert len(chosen) == 20 and np.std(np.concatenate(chosen)) > 0.1


class OneSeed(tf.Module):
    """Samples for the whole batch by one seed."""

    def initial_state(self, batch_size):
        return ()

    def __call__(self, timestep, state, slot, seed):
        return tf.random.stateless_uniform(tf.shape(slot), seed, maxval=4, dtype=tf.int32), (), ()


class KnownSize(tf.Module):
    """Counts on a batch whose size is known."""

    def initial_state(self, batch_size):
        return ()

    def __call__(self, timestep, state, slot, seed):
        return tf.zeros((len(slot),), tf.int32), (), ()


@pytest.mark.parametrize("policy", [OneSeed(), KnownSize()])
def test_a_policy_that_cannot_is_refused_in_one_line(policy):
    with pytest.raises(CallboardError, match="take --inference local") as caught:
        BatchedPolicy(policy, layout_of(DISCRETE))
    assert "\n" not in str(caught.value)
