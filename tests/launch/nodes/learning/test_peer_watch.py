"""A learner whose peer takes no part in a step does not wait for it forever."""

import pathlib
import subprocess
import sys
import types

import pytest
from local_nodes import small_run
from open_door import free_port

from callboard.launch.nodes.learning.end_of_learning import EndOfLearning

PROGRAM = pathlib.Path(__file__).with_name("step_without_peer.py")


@pytest.mark.slow("daily")
@pytest.mark.parametrize("why", ["no data", pytest.param("ended", marks=pytest.mark.slow)])
def test_a_step_in_which_a_peer_takes_no_part_is_ended(why):
    addresses = ",".join(f"localhost:{free_port()}" for _ in range(2))
    first, second = (
        subprocess.Popen(
            [sys.executable, PROGRAM, addresses, str(rank), why],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    )
    try:
        assert first.stdout.readline() == second.stdout.readline() == "2.0\n"
        if why == "ended":
            assert second.wait(60) == 0
        output, _ = first.communicate("\n", timeout=60)
        assert output == "True True\n"
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    "changes, gives_up",
    [
        ({}, True),
        ({"short": {}}, False),
        ({"short": {"learner/1": 1.0}}, False),
        ({"short": {"learner/1": 2.0}}, True),
        ({"stopping": False}, False),
        ({"ended": 1.0}, False),
        ({"rank": 1}, False),
        ({"learning": False}, False),
        ({"waited": 0.1}, False),
    ],
    ids=str,
)
def test_the_first_learner_gives_a_step_up_once_a_peer_has_no_data_for_it(tmp_path, clock, changes, gives_up):
    state = {"short": {"learner/2": 9.0}, "stopping": True, "ended": 2.0, "rank": 0, "learning": True, "waited": 0.0}
    state |= changes
    with small_run("impala-cartpole", tmp_path, only=("coordinator/0",)) as nodes:
        learner = nodes["learner/0"]
        learner._rank, learner._peers, learner._is_learning = state["rank"], ["", "", ""], state["learning"]
        learner.replay = types.SimpleNamespace(short_of_data=state["waited"], release=lambda: None)
        learner._end = EndOfLearning(clock)
        learner.reporter.state = learner.reporter.state._replace(
            stopping=state["stopping"], short_of_data=state["short"]
        )
        assert not learner._waits_in_vain()
        clock.sleep(state["ended"])
        assert learner._waits_in_vain() == gives_up
