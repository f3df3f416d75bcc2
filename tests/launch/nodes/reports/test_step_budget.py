"""The budget of environment steps: together actors keep to the limit, and none waits for one that does nothing."""

import random

import pytest

from callboard.launch.nodes.reports.messages import LeaseRequest
from callboard.launch.nodes.reports.step_budget import StepBudget, StepLease

BATCH = 16


class Actors:
    """Actors that report to a budget; a second passes only where a test says so."""

    def __init__(self, limit, number):
        self.limit, self.now = limit, 0.0
        self.budget = StepBudget(limit, number, restarted=False, now=self.now)
        self.counted: dict[str, int] = {}
        self.actors = [Actor(self, f"actor/{index}", "first") for index in range(number)]

    @property
    def done(self):
        return sum(self.counted.values())

    def restart(self, index):
        self.actors[index] = Actor(self, self.actors[index].name, self.actors[index].incarnation + "+")

    def restart_budget(self):
        self.budget = StepBudget(self.limit, len(self.actors), restarted=True, now=self.now)


class Actor:
    def __init__(self, run, name, incarnation):
        self.run, self.name, self.incarnation = run, name, incarnation
        self.lease = StepLease()
        self.done = self.sequence = 0

    def act(self, timesteps=1):
        """Gives the number of timesteps that the lease permitted."""
        for timestep in range(timesteps):
            if not self.lease.acquire(self.done):
                return timestep
            self.done += BATCH
        return timesteps

    def report(self):
        """Gives the sequence number, for a report that arrives again."""
        self.sequence += 1
        self.send(self.sequence, self.done, self.lease.request())

    def send(self, sequence, done, request):
        self.run.counted[f"{self.name}#{self.incarnation}"] = done
        budget, now = self.run.budget, self.run.now
        limit = budget.renew(self.name, self.incarnation, sequence, done, request, self.run.done, now)
        self.lease.renew(limit)


@pytest.mark.parametrize("number", [1, 3, 50])
@pytest.mark.parametrize("limit", [1, 100, 25_000])
def test_the_limit_is_kept_to_one_timestep_of_each_batch(limit, number):
    """For any speeds and any order of reports."""
    chance = random.Random(limit + number)
    run = Actors(limit, number)
    speeds = [chance.choice([0, 1, 5, 40]) for _ in range(number - 1)] + [5]
    for _ in range(10_000):
        actor = chance.randrange(number)
        if run.actors[actor].act(speeds[actor]) < speeds[actor] or chance.random() < 0.3:
            run.actors[actor].report()
        if run.done >= limit:
            break
    assert limit <= run.done
    assert limit <= sum(actor.done for actor in run.actors) <= limit + number * (BATCH - 1)


def test_far_from_the_limit_an_actor_may_do_much_between_two_reports():
    run = Actors(1_000_000, 2)
    for actor in run.actors:
        actor.report()
    assert run.actors[0].act(10_000) == 10_000


def test_the_last_steps_do_not_wait_for_an_actor_that_does_nothing():
    run = Actors(1000, 2)
    idle, busy = run.actors
    idle.report()
    reports = 0
    while run.done < 1000:
        busy.act(1000)
        busy.report()
        idle.report()
        reports += 1
    assert idle.done == 0 and busy.done < 1000 + BATCH
    assert reports < 40


def test_steps_are_outstanding_until_an_actor_has_reported_its_last_timestep():
    run = Actors(1000, 1)
    (actor,) = run.actors
    assert run.budget.outstanding == 0
    actor.report()
    assert run.budget.outstanding == 500
    assert actor.act(2) == 2 and actor.lease.acquire(actor.done)
    run.budget.limit = 0
    outstanding = []
    for more in (0, 0, BATCH):
        actor.done += more
        actor.report()
        outstanding.append(run.budget.outstanding)
    assert outstanding == [500 - 2 * BATCH, 1, 0]


def test_what_was_begun_while_a_lease_was_shortened_is_not_given_to_others():
    run = Actors(10_000, 2)
    first, second = run.actors
    first.report()
    request, sequence = first.lease.request(), first.sequence + 1
    first.act(100)
    first.send(sequence, 0, request)
    first.sequence = sequence
    assert not first.lease.acquire(first.done) or first.lease.request().limit >= first.done
    while second.act(1) or run.done < 10_000:
        second.report()
        first.report()
    assert 10_000 <= first.done + second.done < 10_000 + 2 * BATCH


def test_an_actor_that_was_killed_leaves_its_lease_to_the_next_incarnation():
    run = Actors(1000, 2)
    for actor in run.actors:
        actor.report()
    run.actors[0].act(3)  # Not reported: these steps are done again.
    run.restart(0)
    run.actors[0].report()
    while run.done < 1000:
        for actor in run.actors:
            actor.act(100)
            actor.report()
    assert run.done < 1000 + 2 * BATCH


def test_an_actor_that_is_not_heard_any_more_loses_its_lease():
    run = Actors(1000, 2)
    lost, other = run.actors
    lost.report()

    def others_act():
        for _ in range(50):
            other.act(1000)
            other.report()

    others_act()
    assert run.done < 1000
    run.now = 31.0
    others_act()
    assert 1000 <= run.done < 1000 + BATCH


def test_a_restarted_budget_gives_out_nothing_before_all_leases_are_known():
    run = Actors(1000, 2)
    first, second = run.actors
    first.report()
    second.report()
    had = first.lease.request().limit
    run.restart_budget()
    first.act(1000)
    first.report()
    assert first.lease.request().limit <= max(had, first.done)
    assert first.act(1) == 0
    second.report()
    first.report()
    assert first.act(1) == 1
    while run.done < 1000:
        for actor in run.actors:
            actor.act(100)
            actor.report()
    assert run.done < 1000 + 2 * BATCH


def test_a_restarted_budget_does_not_wait_for_ever():
    run = Actors(1000, 2)
    run.restart_budget()
    run.actors[0].report()
    assert run.actors[0].act(1) == 0
    run.now = 31.0
    run.actors[0].report()
    assert run.actors[0].act(1) == 1


def test_a_report_that_arrives_twice_or_late_changes_nothing():
    budget = StepBudget(1000, 1, restarted=False, now=0.0)
    granted = budget.renew("actor/0", "a", 1, 0, LeaseRequest(0, False), 0, 0.0)
    assert budget.renew("actor/0", "a", 1, 0, LeaseRequest(0, False), 0, 0.0) == granted
    later = budget.renew("actor/0", "a", 3, 400, LeaseRequest(granted, False), 400, 1.0)
    assert budget.renew("actor/0", "a", 2, 100, LeaseRequest(granted, False), 400, 1.0) == later
