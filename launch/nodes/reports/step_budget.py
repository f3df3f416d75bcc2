"""Distributes the environment steps of a run over its actors so that together they keep to the limit.

The coordinator holds the `StepBudget`.  Every actor holds a `StepLease`, which is renewed with each report to the
coordinator.  Far from the limit leases are long, so that no actor ever waits for one.  Near the limit they become
short, and the last steps are granted one timestep at a time.
"""

import threading

from .messages import LeaseRequest

_SILENT_SECONDS = 30.0
"""Time without a report after which an actor's lease is given to others."""


class StepLease:
    """How many environment steps an actor may do, in total since it started.

    One thread takes timesteps, another renews the lease.  A timestep may begin whenever the limit is not yet reached,
    even if its batch of environments then exceeds it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit = 0
        self._used = 0
        self._wants = False

    def acquire(self, done: int) -> bool:
        """Returns whether another timestep may begin after `done` steps; if True, the actor must take it."""
        with self._lock:
            self._wants = done >= self._limit
            if not self._wants:
                self._used = done + 1
            return not self._wants

    def request(self) -> LeaseRequest:
        """Returns the request for the next report."""
        with self._lock:
            return LeaseRequest(self._limit, self._wants)

    def renew(self, limit: int) -> None:
        """Takes the coordinator's new limit, which may be lower, but never below the timesteps already begun."""
        with self._lock:
            self._limit = max(limit, self._used)


class _Lease:
    """The coordinator's record of the lease of one incarnation of an actor."""

    def __init__(self, incarnation: str):
        self.incarnation = incarnation
        self.sequence = 0
        self.granted = 0
        self.outstanding = 0
        """Steps the actor may have done since its last report, or may still do."""
        self.heard = 0.0


class StepBudget:
    """Distributes the remaining environment steps of a run.

    The steps done and the steps leased never exceed the limit together.  An actor may begin a timestep with the last
    step of its lease, so the run exceeds its limit by less than one timestep of every actor's batch.  There are two
    exceptions.  An actor that is cut off from the coordinator for half a minute, but continues to act, has lost its
    lease.  And the steps of a killed actor since its last report are done again.

    A lease is an equal share of half of the remaining steps, so that an actor that is cut off or slow does not hold up
    the others.  It shrinks with every report; what is taken back is leased to others once the actor has confirmed the
    lower limit with its next report.

    Args:
      limit: environment steps of the run.
      actors: number of actors.
      restarted: whether a previous coordinator may have granted leases.  New leases then wait until all actors have
        reported, or for half a minute.
      now: seconds, of a monotonic clock.
    """

    def __init__(self, limit: int, actors: int, restarted: bool, now: float):
        self.limit = limit
        """Environment steps that the run may do; may be changed at any time."""
        self._actors = actors
        self._waits_until = now + _SILENT_SECONDS if restarted else now
        # Ordered by last report, so that the cost of a report does not depend on the number of actors.
        self._leases: dict[str, _Lease] = {}
        self._leased = 0
        """Sum of the outstanding steps in those leases."""
        self._silent: dict[str, _Lease] = {}
        """Leases given to others because their actors stopped reporting."""

    @property
    def outstanding(self) -> int:
        """Steps that actors may have done since their last reports, or may still do."""
        return self._leased

    def renew(
        self, actor: str, incarnation: str, sequence: int, done: int, request: LeaseRequest, all_done: int, now: float
    ) -> int:
        """Returns the new limit of an actor's lease.

        Args:
          actor: name of the actor.
          incarnation: id of its incarnation.
          sequence: number of the report; one that arrives late or twice changes nothing.
          done: environment steps of this incarnation.
          request: the lease request in the report.
          all_done: environment steps of the run, including those of this report.
          now: seconds, of the same clock as in the constructor.
        """
        self._take_from_silent(now)
        lease = self._silent.pop(actor, None)
        if actor in self._leases:
            lease = self._leases.pop(actor)
            self._leased -= lease.outstanding
        if lease is None or lease.incarnation != incarnation:
            lease = _Lease(incarnation)
        leased_to_others = self._leased
        self._leases[actor] = lease
        self._leased += lease.outstanding
        lease.heard = now
        if sequence <= lease.sequence:
            return lease.granted
        lease.sequence = sequence
        left = max(0, self.limit - all_done)
        if now < self._waits_until and len(self._leases) + len(self._silent) < self._actors:
            lease.granted = max(done, request.limit)
        else:
            share = max(left // (2 * self._actors), int(request.wants))
            lease.granted = done + max(0, min(share, left - leased_to_others))
        lease.outstanding = max(0, max(lease.granted, request.limit) - done)
        self._leased = leased_to_others + lease.outstanding
        return lease.granted

    def _take_from_silent(self, now: float) -> None:
        while self._leases:
            actor, lease = next(iter(self._leases.items()))
            if now - lease.heard < _SILENT_SECONDS:
                return
            self._silent[actor] = self._leases.pop(actor)
            self._leased -= lease.outstanding
