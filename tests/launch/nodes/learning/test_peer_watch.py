"""A learner whose peer takes no part in a step does not wait for it forever."""

import pathlib
import subprocess
import sys

import pytest
from open_door import free_port

PROGRAM = pathlib.Path(__file__).with_name("step_without_peer.py")


@pytest.mark.parametrize("why", ["no data", "ended"])
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
