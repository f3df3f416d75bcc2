"""The environment steps of a run, shared out among its actors so that together they keep to the limit.

The coordinator holds the `StepBudget`; every actor holds a `StepLease`, which each report to the coordinator renews.
Far from the limit a lease is long, so that no actor ever waits for one.  Towards the limit leases become short, and the
last steps are given out timestep by timestep.
"""

import threading
from typing import NamedTuple

_SILENT_SECONDS = 30.0
"""After which the lease of an actor that does not report is given to others."""


class LeaseRequest(NamedTuple):
    """What an actor says about its lease.  Plain Python only, since it travels in a report."""

    limit: int
    """Environment steps that it may do, all in all since it started."""
    wants: bool
    """Whether it waits for more."""


class StepLease:
    """How many environment steps an actor may do, all in all since it started.

    One thread takes timesteps, and another one renews the lease.  A timestep may begin below the limit: its batch of
    environments may exceed it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit = 0
        self._used = 0
        self._wants = False

    def take(self, done: int) -> bool:
        """Whether another timestep may begin after `done` steps; where it may, it must."""
        with self._lock:
            self._wants = done >= self._limit
            if not self._wants:
                self._used = done + 1
            return not self._wants

    def request(self) -> LeaseRequest:
        """What the next report says."""
        with self._lock:
            return LeaseRequest(self._limit, self._wants)

    def renew(self, limit: int) -> None:
        """Takes the coordinator's new limit, which may be lower: what was begun meanwhile is not given back."""
        with self._lock:
            self._limit = max(limit, self._used)


class _Lease:
    """What the coordinator knows of the lease of one incarnation of an actor."""

    def __init__(self, incarnation: str):
        self.incarnation = incarnation
        self.sequence = 0
        self.granted = 0
        self.outstanding = 0
        """Steps that it may have done since its last report, or may still do."""
        self.heard = 0.0


class StepBudget:
    """Shares out what is left of a run's environment steps.

    The steps that are done and those that are leased never exceed the limit.  An actor may begin a timestep with the
    last step of its lease: the run exceeds its limit by less than one timestep of every actor's batch.  Two cases are
    left: an actor that is cut off from the coordinator for half a minute, and acts on, has lost its lease; what an
    actor did after its last report before it was killed is done again.

    A lease is a share of half of what is left, so that one that was cut off or has become slow does not hold up the
    others.  It is shortened with every report; what is taken back is given to others once the actor has confirmed it
    with its next report.

    Args:
      limit: environment steps of the run.
      actors: number of actors.
      restarted: whether another coordinator may have given out leases.  New ones then wait until all actors have
        reported, or half a minute.
      now: seconds, of a clock that never goes back.
    """

    def __init__(self, limit: int, actors: int, restarted: bool, now: float):
        self._limit = limit
        self._actors = actors
        self._waits_until = now + _SILENT_SECONDS if restarted else now
        # In the order in which the actors were last heard, so that a report costs the same however many there are.
        self._leases: dict[str, _Lease] = {}
        self._leased = 0
        """The steps that are outstanding in those leases."""
        self._silent: dict[str, _Lease] = {}
        """Leases that were given to others."""

    def renew(
        self, actor: str, incarnation: str, sequence: int, done: int, request: LeaseRequest, all_done: int, now: float
    ) -> int:
        """The new limit of an actor's lease.

        Args:
          actor: its name.
          incarnation: different at every start of it.
          sequence: number of the report; one that arrives late or twice changes nothing.
          done: environment steps of this incarnation.
          request: what the report says about its lease.
          all_done: environment steps of the run, those of this report included.
          now: seconds, of the clock that the budget began with.
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
        left = max(0, self._limit - all_done)
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
