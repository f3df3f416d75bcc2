"""Pacing of places: those in use share what all of them may have in flight."""

from callboard.data import Version
from callboard.launch.nodes.inference.policy_server import PlacePacer, SharedPace
from callboard.replay import Pace

PACE = Pace(max_policy_lag=0, unroll_length=2, items_per_actor=1)


class Paced:
    def __init__(self, places):
        self.now = 0.0
        self.shared = SharedPace(PACE, places, lambda: self.now)
        self.pacers = [PlacePacer(PACE, index, self.shared) for index in range(places)]

    def sequence(self, place, version):
        """Writes a sequence if it may; returns whether it did."""
        pacer = self.pacers[place]
        if not pacer.may_begin(version):
            return False
        pacer.begin()
        pacer.count_timestep()
        pacer.count_timestep()
        return True


def test_one_place_may_write_the_sequences_of_all():
    paced = Paced(4)
    assert [paced.sequence(0, Version(0, 1)) for _ in range(5)] == [True, True, True, True, False]
    assert [paced.sequence(1, Version(0, 2)) for _ in range(5)] == [True, True, True, True, False]


def test_a_sequence_in_progress_counts_unless_its_place_rests():
    paced = Paced(2)
    paced.pacers[0].may_begin(Version(0, 1))
    paced.pacers[0].begin()
    paced.pacers[0].count_timestep()
    assert [paced.sequence(1, Version(0, 1)) for _ in range(2)] == [True, False]
    paced.pacers[0].rest()
    assert [paced.sequence(1, Version(0, 1)) for _ in range(2)] == [True, False]
    # It continues with what it has begun.
    assert not paced.pacers[0].waits_to_begin


def test_an_extra_sequence_begins_where_the_learner_has_waited():
    paced = Paced(2)
    assert [paced.sequence(0, Version(0, 1)) for _ in range(2)] == [True, True]
    assert not paced.pacers[0].may_help(5.0)
    paced.now = 1.5
    assert not paced.pacers[0].may_help(0.5)
    assert paced.pacers[0].may_help(1.2)
    assert not paced.pacers[1].may_help(1.2)


def test_a_restarted_learner_gets_new_sequences():
    paced = Paced(2)
    for _ in range(2):
        paced.sequence(0, Version(0, 7))
    assert not paced.sequence(0, Version(0, 7))
    assert paced.sequence(0, Version(1, 3))
