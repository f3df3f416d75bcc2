"""Snapshots that are fetched in parts: a bounded number, none lost while it is fetched."""

import numpy as np

from callboard.launch.nodes.acting.weight_store import HeldSnapshots

PACKED = np.arange(10, dtype=np.uint8)


def fetch(held, version):
    return np.concatenate([held.part(version, 0, 6), held.part(version, 6, 6)]).tolist()


def test_a_snapshot_stays_while_newer_ones_come():
    held = HeldSnapshots()
    assert held.begin((0, 1), PACKED, None) == ((0, 1), 10)
    assert held.begin((0, 2), PACKED, None) == ((0, 2), 10)
    assert fetch(held, (0, 1)) == fetch(held, (0, 2)) == list(range(10))


def test_their_number_is_bounded_and_late_clients_share_the_newest_of_them():
    held = HeldSnapshots()
    for step in range(4):
        assert held.begin((0, step), PACKED, None) == ((0, step), 10)
    assert held.begin((0, 9), PACKED, None) == held.begin((0, 9), PACKED, (0, 2)) == ((0, 3), 10)
    assert held.begin((0, 9), PACKED, (0, 3)) is None, "it has that one, and no other can be kept"
    fetch(held, (0, 0))
    assert held.begin((0, 9), PACKED, (0, 3)) == ((0, 9), 10) and held.part((0, 0), 0, 1) is None


def test_clients_that_ended_leave_their_places():
    now = [0.0]
    held = HeldSnapshots(lambda: now[0])
    for step in range(4):
        held.begin((0, step), PACKED, None)
    now[0] = 100.0
    assert held.begin((1, 0), PACKED, (0, 3)) == ((1, 0), 10)
