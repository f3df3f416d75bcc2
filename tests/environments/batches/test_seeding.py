"""Seeds of environments: none twice in a run, and the same however slots are assigned to nodes."""

import pytest

from callboard import environments


def test_seeds_differ_by_run_role_slot_and_incarnation_and_not_by_how_slots_are_shared_out():
    actors = environments.environment_seeds(0, "actor", 0, 500)
    everyone = actors + environments.environment_seeds(0, "evaluator", 0, 500)
    everyone += environments.environment_seeds(1, "actor", 0, 500)
    everyone += environments.environment_seeds(0, "actor", 0, 500, incarnation=1)
    everyone += environments.environment_seeds(0, "actor", 0, 500, incarnation=2)
    assert len(set(everyone)) == 2500
    assert all(0 <= seed < 2**31 for seed in everyone)
    assert environments.environment_seeds(0, "actor", 16, 16) == actors[16:32]


def test_seeds_stay_what_they_were():
    """A run is repeated with the seeds that it had, also by a later version."""
    assert environments.environment_seeds(1, "actor", 0, 3) == [1511999270, 1485454133, 1126952529]


@pytest.mark.parametrize("arguments", [(-1, "actor", 0, 1), (0, "actor", -1, 1), (0, "actor", 0, -1)])
def test_negative_numbers_are_refused(arguments):
    with pytest.raises(ValueError, match="must not be negative"):
        environments.environment_seeds(*arguments)
    with pytest.raises(ValueError, match="incarnation -1 must not be negative"):
        environments.environment_seeds(0, "actor", 0, 1, incarnation=-1)


def test_an_unknown_role_is_refused():
    with pytest.raises(ValueError):
        environments.environment_seeds(0, "learner", 0, 1)
