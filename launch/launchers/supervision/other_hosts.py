"""The supervisors of other hosts, as the supervisor of one host sees them."""

from collections.abc import Mapping

from ..run_outcome import Outcome


class OtherHosts:
    """Coordination with the supervisors of other hosts; there are none, unless a subclass knows some."""

    def may_stop(self, order: int) -> bool:
        """Returns whether the nodes with this stop order may be stopped."""
        return True

    def have_stopped(self, order: int) -> None:
        """Reports that all nodes of this supervisor up to this stop order have ended."""

    def must_restart(self, group: str) -> bool:
        """Returns whether the nodes of a restart group must end, because a node of it died on another host."""
        return False

    def group_ended(self, group: str) -> None:
        """Reports that all nodes of a restart group have ended on this host, in order to start again."""

    def may_start(self, group: str) -> bool:
        """Returns whether a restart group has ended on every host, so that it may start again."""
        return True

    def seconds_blocked(self, here: dict[str, float]) -> Mapping[str, float]:
        """Reports for how long all nodes of each restart group have been blocked on this host, in seconds by group.

        Returns the same for all hosts, as far as is known.
        """
        return here

    def ends(self, outcome: Outcome) -> None:
        """Reports how the run ends on this host; called again if a failure is found afterwards."""
