"""The end of learning, as a table of times."""

import itertools

import pytest

from callboard.launch.nodes.learning.end_of_learning import LAST_DATA, PROMISED_STEPS, EndOfLearning


@pytest.fixture
def end(clock):
    return EndOfLearning(clock)


@pytest.mark.parametrize(
    "patience, ending, short_of_data, over",
    [
        (LAST_DATA, 0.0, 0.0, False),
        (LAST_DATA, 0.0, 0.5, False),
        (LAST_DATA, 0.0, 0.6, True),  # It was short of data before the run began to end.
        (LAST_DATA, 2.0, 0.0, False),
        (LAST_DATA, 2.1, 0.0, True),  # However much data there is.
        (PROMISED_STEPS, 0.0, 9.0, False),  # Actors may just be sending what the steps that are owed need.
        (PROMISED_STEPS, 1.4, 9.0, False),
        (PROMISED_STEPS, 1.5, 9.0, True),
        (PROMISED_STEPS, 9.0, 1.5, False),
        (PROMISED_STEPS, 9.0, 1.6, True),
        (PROMISED_STEPS, 1e6, 0.0, False),  # All the steps that are owed are made, however long they take.
    ],
)
def test_learning_ends_after_some_time_without_data_or_in_all(end, clock, patience, ending, short_of_data, over):
    end.begin()
    clock.now += ending
    end.update(short_of_data, patience)
    assert end.is_over == over


@pytest.mark.parametrize("patience", [LAST_DATA, PROMISED_STEPS], ids=["last data", "promised steps"])
def test_learning_that_is_over_does_not_begin_again(end, clock, patience):
    end.begin()
    clock.now += 9.0
    end.update(9.0, patience)
    for short_of_data, rule in itertools.product((0.0, 9.0), (LAST_DATA, PROMISED_STEPS)):
        end.update(short_of_data, rule)
        assert end.is_over


def test_the_time_counts_from_the_first_notice_of_the_end(end, clock):
    end.begin()
    for _ in range(3):
        clock.now += 1.0
        end.begin()
    end.update(0.0, LAST_DATA)
    assert end.is_over


def test_a_step_that_others_do_not_take_part_in_ends_learning(end):
    end.begin()
    assert not end.is_over
    end.give_up()
    assert end.is_over


@pytest.mark.parametrize(
    "ending, short_of_data, peers, in_vain",
    [
        (2.0, 0.0, [0.0, 9.0], True),
        (2.0, 0.0, [0.0, 1.6], True),
        (2.0, 0.0, [1.5, 1.5], False),
        (2.0, 0.0, [], False),
        (1.4, 0.0, [0.0, 9.0], False),
        (2.0, 0.1, [0.0, 9.0], False),  # This learner still waits for its own batch.
    ],
)
def test_a_step_is_in_vain_for_which_another_learner_gets_no_batch(end, clock, ending, short_of_data, peers, in_vain):
    end.begin()
    clock.now += ending
    assert end.leaves_step(short_of_data, peers) == in_vain
    assert not end.is_over


def test_no_step_is_in_vain_before_the_run_ends(end):
    assert not end.leaves_step(0.0, [9.0])
