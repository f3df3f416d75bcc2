"""The places of a policy server: when they are made, which one is taken, and that each is given back and closed."""

from callboard.launch.nodes.inference.places import Place, PlacePool


class CountedPlace(Place):
    """A place that counts calls."""

    def __init__(self, index):
        super().__init__(index, (), 0)
        self.rested = self.closed = 0

    def rest(self):
        self.rested += 1

    def close(self):
        self.closed += 1


def test_places_are_made_when_there_is_no_free_one_and_the_first_free_one_is_taken():
    pool = PlacePool(CountedPlace, 2)
    first = pool.take()
    pool.give_back(first)
    assert pool.take() is first and first.rested == 1
    second = pool.take()
    assert second.index == 1 and pool.take() is None
    pool.give_back(second)
    pool.give_back(first)
    assert pool.take() is first
    pool.close()
    assert (first.closed, second.closed) == (1, 1)


def test_places_that_rotate_are_all_made_and_then_taken_in_turn():
    pool = PlacePool(CountedPlace, 2, rotates=True)
    taken = []
    for _ in range(4):
        taken.append(pool.take())
        pool.give_back(taken[-1])
    assert [place.index for place in taken] == [0, 1, 0, 1]
