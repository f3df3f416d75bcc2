"""A supervisor without other hosts: nothing waits for them."""

from callboard.launch.launchers.run_outcome import Outcome
from callboard.launch.launchers.supervision.other_hosts import OtherHosts


def test_alone_a_host_decides_for_itself():
    alone = OtherHosts()
    assert alone.may_stop(0) and alone.may_stop(5) and alone.may_start("learner")
    assert not alone.must_restart("learner")
    alone.have_stopped(0)
    alone.group_ended("learner")
    alone.ends(Outcome())
    assert alone.seconds_blocked({"learner": 7.0}) == {"learner": 7.0}
