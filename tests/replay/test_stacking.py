"""A policy and replay must see the same stacks."""

import numpy as np
import pytest
import timestep_streams
import tree
from dm_env import specs as dm_specs

from callboard.data import Sample, Timestep
from callboard.errors import CallboardError
from callboard.replay import check_stack, initial_frames, push_frames, stacked_sample, stacked_spec
from callboard.specs import EnvironmentSpec, MultiDiscreteArray


@pytest.mark.parametrize("stack", [1, 2, 4])
def test_a_policy_stacks_what_replay_stacks(stack):
    envs, records = 3, timestep_streams.stream(3, 60)
    frames = initial_frames(stacked_spec(timestep_streams.SPEC, stack).observation, stack, envs)
    for timestep, record in enumerate(records):
        output = Timestep(record.observation, record.reward, record.discount, record.first, record.last)
        observation, frames = push_frames(output, frames, stack)
        for env in range(envs):
            expected = timestep_streams.stacked(records, env, timestep, stack)
            np.testing.assert_array_equal(np.asarray(observation["eye"])[env], expected)
        np.testing.assert_array_equal(observation["body"], record.observation["body"])


def test_sequences_are_stacked_with_the_frames_in_their_state():
    envs, stack, begin, length = 3, 3, 20, 30
    records = timestep_streams.stream(envs, begin + length)
    frames = initial_frames(stacked_spec(timestep_streams.SPEC, stack).observation, stack, envs)
    for record in records[:begin]:
        _, frames = push_frames(record, frames, stack)
    rows = tree.map_structure(lambda *leaves: np.stack(leaves), *records[begin:])
    sample = stacked_sample(Sample(rows, {"core": 1, "frames": frames}), stack)
    assert sample.state == {"core": 1, "frames": ()}
    for row in range(length):
        for env in range(envs):
            expected = timestep_streams.stacked(records, env, begin + row, stack)
            np.testing.assert_array_equal(sample.record.observation["eye"][row, env], expected)


def test_the_spec_of_a_stack():
    spec = EnvironmentSpec(
        {
            "eye": dm_specs.BoundedArray((4, 4, 2), np.uint8, [0, 1], [255, 7]),
            "map": dm_specs.Array((3, 3, 1), np.float32),
            "body": dm_specs.Array((5,), np.float32),
            "tiles": MultiDiscreteArray(np.full((2, 2, 1), 7)),
        },
        dm_specs.DiscreteArray(2),
    )
    stacked = stacked_spec(spec, 3).observation
    tiles = stacked.pop("tiles")
    assert tiles.shape == (2, 2, 3) and (tiles.num_values == 7).all()
    assert tree.map_structure(lambda leaf: leaf.shape, stacked) == {"eye": (4, 4, 6), "map": (3, 3, 3), "body": (5,)}
    np.testing.assert_array_equal(stacked["eye"].maximum, [255, 7] * 3)
    assert stacked_spec(spec, 1) == spec


@pytest.mark.parametrize(("shape", "stack"), [((4,), 2), ((4, 4, 1), 0), ((3, 84, 84), 2)])
def test_what_cannot_be_stacked_is_refused(shape, stack):
    spec = EnvironmentSpec(dm_specs.Array(shape, np.float32), dm_specs.DiscreteArray(2))
    with pytest.raises(CallboardError, match="agent.frame_stack"):
        check_stack(spec, stack)
    check_stack(spec, 1)
