"""What the methods of a replay kind of the user's own return is checked."""

import types

import pytest
import tensorflow as tf

from callboard.errors import CallboardError
from callboard.replay import ReplayDataset, checked_writer, made_dataset, made_tables


class OwnReplay:
    made = None

    def tables(self):
        return self.made

    def dataset(self, replay, input_context):
        return self.made


@pytest.fixture
def own():
    return OwnReplay()


@pytest.mark.parametrize("made", [None, [], ["table"]])
def test_tables_are_those_of_reverb(own, made):
    own.made = made
    with pytest.raises(CallboardError, match="OwnReplay.tables must return a list of reverb.Table, not"):
        made_tables(own)


@pytest.mark.parametrize("made", [None, tf.data.Dataset.range(3), ReplayDataset([1, 2], "replay", 1)])
def test_a_dataset_comes_with_its_table(own, made):
    own.made = made
    with pytest.raises(
        CallboardError, match="OwnReplay.dataset must return a ReplayDataset around a tf.data.Dataset, not"
    ):
        made_dataset(own, None, None)
    own.made = ReplayDataset(tf.data.Dataset.range(3), "replay", 1)
    assert made_dataset(own, None, None) is own.made


def test_a_writer_has_all_that_actors_call():
    writer = types.SimpleNamespace(append=len, items_written=0, ready=len)
    with pytest.raises(CallboardError, match="SimpleNamespace has no close; see replay/replay_protocol.py"):
        checked_writer(writer)
    writer.close = len
    assert checked_writer(writer) is writer
