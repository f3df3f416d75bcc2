"""The newest records of a batch as contiguous arrays."""

import numpy as np
import pytest
import timestep_streams
import tree

from callboard.replay.writing.item_writer import RecentRecords


@pytest.mark.parametrize("all_fields", [True, False])
def test_the_newest_records_have_the_shapes_of_a_sample(all_fields):
    timesteps = timestep_streams.stream(envs=2, timesteps=300)
    recent = RecentRecords(timestep_streams.layout(2).record, batch=2, length=3, all_fields=all_fields)
    for timestep, record in enumerate(timesteps):
        recent.append(tree.flatten(record))
        if timestep < 3:
            continue
        newest = timesteps[timestep - 3 : timestep + 1]
        sample = recent.sample()
        assert sample.observation == ()
        np.testing.assert_array_equal(sample.first, [record.first for record in newest])
        np.testing.assert_array_equal(sample.last, [record.last for record in newest])
        np.testing.assert_array_equal(sample.discount, [record.discount for record in newest[:-1]])
        if all_fields:
            np.testing.assert_array_equal(sample.action, [record.action for record in newest[:-1]])
            np.testing.assert_array_equal(sample.reward, [record.reward for record in newest[:-1]])
            np.testing.assert_array_equal(sample.version, [record.version for record in newest[:-1]])
            np.testing.assert_array_equal(sample.extras["q"], [record.extras["q"] for record in newest])
        else:
            assert tree.flatten((sample.action, sample.reward, sample.version, sample.extras)) == []
