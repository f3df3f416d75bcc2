"""Waiting until a server has taken what a writer has sent, which ends also where there is no time for it."""

import threading

import numpy as np
import pytest
import reverb

from callboard.replay.writing.flushing import flushed


@pytest.mark.parametrize("timeout", [0.1, 0.0005, 0.0])
def test_a_full_table_is_waited_for_as_long_as_allowed(serve, timeout):
    replay = serve([reverb.Table.queue("items", 1)])
    writer = replay.client().trajectory_writer(1)
    answers = []

    def write():
        for number in range(2):
            writer.append(np.float32(number))
            writer.create_item("items", 1.0, writer.history[-1:])
        answers.extend([flushed(writer, 10.0, 1), flushed(writer, timeout, 0)])

    # Without its own end, a thread does not stop the tests.
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(20)
    assert answers == [True, False]
    next(replay.client().sample("items"))
    assert flushed(writer, 10.0, 0)
    writer.close()
