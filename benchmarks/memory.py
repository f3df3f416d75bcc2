"""Bytes of memory per frame in a replay server, relative to the size of the frame.

The figure is the growth of the server's process while frames of 84x84 bytes are written through our writers, divided by
the number of frames.  Frames are noise, which does not compress, or images of a game as produced by our environments.
Reverb's tables of keys double at certain numbers of items; shortly before these (57,344, 114,688, ..., 917,504) a frame
takes 60 bytes less than shortly after, as here and with a million.

- *stacked windows*: Ape-X's 3-step windows of 4 stacked frames, one per timestep of each environment;
- *blocks*: IMPALA's sequences of 20 transitions of 16 environments.
"""

import contextlib
import functools
import itertools
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import psutil
import reverb

from .. import environments
from ..launch.launchers.node_processes.malloc_arenas import use_one_arena
from ..replay import (
    ReplayHandle,
    SequenceWriter,
    WindowFormat,
    WindowWriter,
    sequence_signature,
    start_server,
)
from .harness import Case
from .replay_work import ENVS, LENGTH, STEPS, TABLE, Kind
from .side import ServingProcess, Side
from .streams import OBSERVATIONS, layout_of, timesteps_of

Pictures = Literal["noise", "Breakout"]

_OBSERVATION = "84x84 bytes"
_FRAME_BYTES = 84 * 84
_STACK = 4
_EPISODE = 1000
_SETTLING_SECONDS = 1.0
_FIRST_TIMESTEPS = 200
_GAME_TIMESTEPS = 250
"""Timesteps of a game, which are written repeatedly; many times more than fit into one chunk."""
_SERVERS = 20
"""Maximum number of repeats."""


class BytesPerFrame(Side):
    """Fills a new server for each figure.

    Args:
      kind: kind of the items.
      pictures: content of the frames.
      frames: number of frames to write.
    """

    def __init__(self, kind: Kind, pictures: Pictures, frames: int):
        self._kind = kind
        self._frames = frames
        self._pictures = _noise() if pictures == "noise" else _game()
        # Servers are forks, created before this process connects to any of them.
        self._unused = [ServingProcess() for _ in range(_SERVERS)]
        self._layout = layout_of(OBSERVATIONS[_OBSERVATION], ENVS)
        self._timesteps = timesteps_of(self._layout, 8)

    def measure(self) -> float:
        with contextlib.closing(self._unused.pop()) as server:
            port = server.start(functools.partial(_serve_table, self._kind, self._frames))
            replay = ReplayHandle(lambda: [f"localhost:{port}"])
            memory = psutil.Process(server.pid).memory_info
            writer = self._make_writer(replay)
            with contextlib.closing(writer):
                # Memory of the server's connections and threads must not be attributed to frames.
                self._write(writer, range(_FIRST_TIMESTEPS))
                before = memory().rss
                self._write(writer, range(_FIRST_TIMESTEPS, _FIRST_TIMESTEPS + self._frames // ENVS))
                return (memory().rss - before) / self._frames

    def close(self) -> None:
        for server in self._unused:
            server.close()

    def _make_writer(self, replay: ReplayHandle) -> Any:
        if self._kind == "windows":
            return WindowWriter(replay, WindowFormat(self._layout, STEPS, _STACK), TABLE)
        return SequenceWriter(replay, self._layout, TABLE, LENGTH, LENGTH)

    def _write(self, writer: Any, numbers: range) -> None:
        for number, timestep in zip(numbers, itertools.cycle(self._timesteps), strict=False):
            begins = np.full(ENVS, number % _EPISODE == 0)
            writer.append(timestep._replace(observation=next(self._pictures), first=begins), ())
            while not writer.ready(10.0):
                pass
        while not writer.ready(10.0, max_pending=0):
            pass
        time.sleep(_SETTLING_SECONDS)


def _noise() -> Iterator[np.ndarray]:
    """Yield new noise each time, because Reverb deduplicates equal frames in a chunk."""
    rng = np.random.default_rng(0)
    while True:
        yield np.frombuffer(rng.bytes(ENVS * _FRAME_BYTES), np.uint8).reshape(ENVS, *OBSERVATIONS[_OBSERVATION].shape)


def _game() -> Iterator[np.ndarray]:
    """Yield frames of Breakout played at random, cyclically."""
    environment = environments.make("ALE/Breakout-v5", ENVS, list(range(ENVS)))
    rng = np.random.default_rng(0)
    pictures = [environment.reset().observation]
    while len(pictures) < _GAME_TIMESTEPS:
        pictures.append(environment.step(rng.integers(0, environment.spec.action.num_values, ENVS)).observation)
    environment.close()
    yield from itertools.cycle(np.stack(pictures))


def _serve_table(kind: Kind, frames: int) -> tuple[Any, int]:
    # As in the process of a replay node.
    use_one_arena()
    layout = layout_of(OBSERVATIONS[_OBSERVATION], ENVS)
    signature = (
        WindowFormat(layout, STEPS, _STACK).signature()
        if kind == "windows"
        else sequence_signature(layout, LENGTH, ENVS)
    )
    table = reverb.Table(
        TABLE,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=frames + _FIRST_TIMESTEPS * ENVS,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )
    directory = tempfile.TemporaryDirectory(prefix="callboard-bench-")
    server = start_server([table], None, pathlib.Path(directory.name), restore=False)
    return (server, directory), server.port


def cases(quick: bool) -> list[Case]:
    frames = 3_200 if quick else 64_000
    kinds: list[tuple[str, Kind, Pictures]] = [
        ("stacked windows", "windows", "noise"),
        ("stacked windows of Breakout", "windows", "Breakout"),
        ("blocks", "sequences", "noise"),
    ]
    return [
        Case(
            name,
            "bytes for a frame",
            functools.partial(BytesPerFrame, kind, pictures, frames),
            limit=float(_FRAME_BYTES),
            target=1.10,
            higher_is_better=False,
        )
        for name, kind, pictures in kinds
    ]
