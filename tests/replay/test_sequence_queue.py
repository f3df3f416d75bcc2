"""Sizes of batches that a queue of whole actor batches can supply."""

import pytest

from callboard.errors import CallboardError
from callboard.replay import items_per_batch


@pytest.mark.parametrize(("batch", "replicas", "per_batch"), [(4, 1, 1), (8, 1, 2), (2, 1, 0.5), (8, 2, 2), (4, 2, 1)])
def test_items_of_a_batch(batch, replicas, per_batch):
    assert items_per_batch(batch, 4, replicas) == per_batch


@pytest.mark.parametrize(
    ("batch", "replicas", "message"), [(6, 1, "set agent.batch_size to 4 or 8"), (7, 2, "a multiple of 2")]
)
def test_a_batch_that_cannot_be_formed_is_refused_in_one_line(batch, replicas, message):
    with pytest.raises(CallboardError, match=message) as raised:
        items_per_batch(batch, 4, replicas)
    assert "\n" not in str(raised.value)
