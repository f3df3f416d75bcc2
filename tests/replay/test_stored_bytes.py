"""What a replay of stacked n-step transitions costs, against the same frames stored once each."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import timestep_streams

from callboard.data import Record
from callboard.replay import ReplayHandle, WindowFormat, WindowWriter
from callboard.replay.writing.batch_writers import CHUNK_LENGTH

FRAMES, ENVS = 200_000, 8
EPISODE = 1000


def bytes_of_server(directory, write):
    """What a server's memory grows by."""
    with socket.socket() as unused:
        unused.bind(("", 0))
        port = unused.getsockname()[1]
    script = Path(__file__).with_name("serve_windows.py")
    arguments = [sys.executable, script, str(port), directory, "frames"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout.readline() == b"serving\n"
            memory = psutil.Process(process.pid).memory_info
            before = memory().rss
            write(ReplayHandle(lambda: [f"localhost:{port}"]))
            time.sleep(1)
            return memory().rss - before
        finally:
            process.kill()


def write_windows(replay):
    """3-step windows of 4-stacked frames, one to every timestep."""
    window_format = WindowFormat(timestep_streams.frames_layout(ENVS), length=3, stack=4)
    rng = np.random.default_rng(0)
    writer = WindowWriter(replay, window_format, "replay")
    begun = time.monotonic()
    for timestep in range(FRAMES // ENVS):
        writer.append(
            Record(
                observation=np.frombuffer(rng.bytes(ENVS * 84 * 84), np.uint8).reshape(ENVS, 84, 84, 1),
                first=np.full(ENVS, timestep % EPISODE == 0),
                last=np.full(ENVS, timestep % EPISODE == EPISODE - 1),
                action=np.zeros(ENVS, np.int32),
                reward=rng.normal(size=ENVS).astype(np.float32),
                discount=np.ones(ENVS, np.float32),
                extras={"q": np.zeros((ENVS, 2), np.float32)},
                version=np.zeros((ENVS, 2), np.int32),
            )
        )
        while not writer.ready(60):
            pass
    writer.close()
    print(f"{writer.items_written} windows, {FRAMES / (time.monotonic() - begun):,.0f} timesteps a second")


def write_once(replay):
    """The same number of frames, each in one item only, with chunks of the same length."""
    rng = np.random.default_rng(0)
    writer = replay.client().trajectory_writer(CHUNK_LENGTH)
    writer.configure((0,), num_keep_alive_refs=CHUNK_LENGTH, max_chunk_length=CHUNK_LENGTH)
    for number in range(1, FRAMES + 1):
        writer.append((np.frombuffer(rng.bytes(84 * 84), np.uint8).reshape(84, 84, 1),))
        if number % CHUNK_LENGTH == 0:
            writer.create_item("once", 1.0, (writer.history[0][-CHUNK_LENGTH:],))
            writer.flush(10, 10_000)
    writer.flush(0, 10_000)
    writer.close()


@pytest.mark.slow
def test_stacks_and_windows_cost_little_more_than_their_frames(tmp_path):
    raw = FRAMES * 84 * 84
    windows = bytes_of_server(tmp_path / "windows", write_windows)
    once = bytes_of_server(tmp_path / "once", write_once)
    print(f"windows: {windows / raw:.3f} x the raw frames; once: {once / raw:.3f}; ratio {windows / once:.3f}")
    assert windows <= 1.15 * once
