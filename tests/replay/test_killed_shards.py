"""Two shards, one of them killed and started again: the reader does not wait for it, and finds it again."""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import timestep_streams

from callboard.data import Priorities
from callboard.replay import (
    BatchReader,
    Heartbeat,
    PriorityUpdater,
    ReplayHandle,
    ShardSaver,
    WindowFormat,
    WindowWriter,
    sampled_dataset,
)
from callboard.runtime.deadlines import wait_until

FORMAT = WindowFormat(timestep_streams.layout(envs=3, actors=2, shards=2), length=1)
BATCH = 16


class Shard:
    def __init__(self, directory):
        with socket.socket() as unused:
            unused.bind(("", 0))
            self.port = unused.getsockname()[1]
        self._directory = directory
        self.start()

    def start(self):
        script = Path(__file__).with_name("serve_windows.py")
        self.process = subprocess.Popen(
            [sys.executable, script, str(self.port), self._directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def wait(self):
        assert self.process.stdout.readline() == b"serving\n"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def shards(tmp_path):
    started = [Shard(tmp_path / str(number)) for number in range(2)]
    yield started
    for shard in started:
        shard.kill()


def write(replay, shard, timesteps=30):
    writer = WindowWriter(replay, FORMAT, "replay", shard=shard)
    for record in timestep_streams.stream(3, timesteps, seed=shard):
        writer.append(record)
        assert writer.ready(60)
    writer.close()


@pytest.mark.slow
def test_a_shard_that_is_killed_is_left_out_and_found_again(shards, tmp_path):
    for shard in shards:
        shard.wait()
    replay = ReplayHandle(lambda: [f"localhost:{shard.port}" for shard in shards])
    stop = threading.Event()
    Heartbeat(replay, stop)
    for number in range(2):
        write(replay, number)
    reader = BatchReader(lambda: sampled_dataset(replay, FORMAT, "replay", BATCH, 0.6), stop.is_set)
    updater = PriorityUpdater(replay, "replay")

    def draw(seconds):
        """The shards that the next batches come from, and the longest that one was waited for."""
        seen, longest, deadline = [], 0.0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            begun = time.monotonic()
            info = next(reader).info
            longest = max(longest, time.monotonic() - begun)
            begun = time.monotonic()
            updater.submit(Priorities(info.key, info.shard, np.ones(BATCH, np.float32)))
            assert time.monotonic() - begun < 0.5
            seen.append(set(info.shard.numpy()))
        return seen, longest

    seen, _ = draw(3)
    assert seen[-1] == {0, 1}
    assert ShardSaver(replay, tmp_path / "1", 1).save()
    shards[1].kill()
    seen, longest = draw(15)
    assert longest < 10 and seen[-1] == {0}
    assert updater.counts().sent

    shards[1].start()
    shards[1].wait()
    assert wait_until(lambda: {0, 1} in draw(1)[0], 60.0, 0.0), "the shard was not found again"
    draw(2)
    assert updater.wait(20)
    dropped = updater.counts().dropped
    draw(2)
    assert updater.wait(20) and updater.counts().dropped == dropped
    stop.set()
    updater.close()
    reader.close()


@pytest.mark.slow
def test_a_shard_that_moves_is_found_at_its_new_address(shards):
    """It was away from the beginning, and its handle resolves to another address when it comes."""
    for shard in shards:
        shard.wait()
    with socket.socket() as closed:
        closed.bind(("", 0))
        closed_port = f"localhost:{closed.getsockname()[1]}"
    addresses = [f"localhost:{shards[0].port}", closed_port]
    replay = ReplayHandle(lambda: addresses)
    write(ReplayHandle(lambda: [f"localhost:{shard.port}" for shard in shards]), 1)
    write(replay, 0)
    reader = BatchReader(lambda: sampled_dataset(replay, FORMAT, "replay", BATCH, 0.6), lambda: False)
    begun = time.monotonic()
    assert set(next(reader).info.shard.numpy()) == {0} and time.monotonic() - begun < 10
    addresses[1] = f"localhost:{shards[1].port}"
    assert wait_until(lambda: set(next(reader).info.shard.numpy()) == {0, 1}, 20.0, 0.0)
    reader.close()
