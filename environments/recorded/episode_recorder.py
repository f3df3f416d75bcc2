"""Records the episodes of a batch of environments in a thread of its own, and passes them on."""

import queue
import threading
import time
from collections.abc import Callable, Sequence

import tree

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, EnvironmentWrapper
from .episode_columns import EpisodeColumns
from .episode_cutter import EpisodeCutter, Step

_PASS_ON_BYTES = 2**24
_PASS_ON_SECONDS = 1.0
_BLOCK_STEPS = 64
_BLOCK_BYTES = 2**22
_BLOCK_SECONDS = 0.5
"""A block of timesteps goes to the thread after this time, also if it is not full."""
_WAITING_BLOCKS = 8

Sink = Callable[[list[EpisodeColumns]], bool]
"""Takes episodes, and returns once they are safe: True, or False if it takes no more."""


class EpisodeRecorder:
    """Records whole episodes of a batch; what it receives must not be modified later.

    The thread that steps only collects blocks of timesteps, which the recorder's thread cuts into episodes.

    Args:
      spec: spec of the environments.
      seeds: the seed of each environment's first episode; None for environments that were reset without one.
      sink: takes the episodes, in the recorder's thread.
      notify: takes a line for the user.
      quota: number of episodes of each environment that are recorded, the first ones; None for all.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        seeds: Sequence[int | None],
        sink: Sink,
        notify: Callable[[str], object] = lambda text: None,
        quota: int | None = None,
    ):
        self._cutter = EpisodeCutter(spec, seeds, notify, quota)
        self._sink = sink
        self._block: list[Step] = []
        self._block_steps = 1
        self._block_ends = 0.0
        self._full = False
        self._failure: BaseException | None = None
        self._last_block_taken = False
        self._blocks: queue.Queue[Timestep | list[Step] | None] = queue.Queue(_WAITING_BLOCKS)
        self._thread = threading.Thread(target=self._record, name="episodes", daemon=True)
        self._thread.start()

    def begin(self, timestep: Timestep) -> None:
        """Takes the first timestep of all environments; open episodes are left out."""
        self._hand_over()
        self._blocks.put(timestep)
        row_bytes = 1 + sum(leaf.nbytes for leaf in tree.flatten(timestep.observation))
        self._block_steps = min(max(_BLOCK_BYTES // row_bytes, 1), _BLOCK_STEPS)

    def step(self, action: Nest, timestep: Timestep) -> None:
        """Takes an action and the timestep that followed; waits if the sink is slower than the environments."""
        if self._failure is not None:
            raise self._failure
        if self._full:
            return
        self._block.append((action, timestep))
        if len(self._block) >= self._block_steps or time.monotonic() > self._block_ends:
            self._hand_over()

    def close(self, timeout: float = 60.0) -> None:
        """Passes on all episodes that have ended."""
        self._hand_over()
        self._blocks.put(None)
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure

    def _hand_over(self) -> None:
        """Gives the block to the thread."""
        if self._block:
            self._blocks.put(self._block)
            self._block = []
        self._block_ends = time.monotonic() + _BLOCK_SECONDS

    def _record(self) -> None:
        try:
            self._record_until_closed()
        except BaseException as error:
            self._failure = error
            # Nothing waits for room in the queue from here on.
            while not self._last_block_taken:
                self._last_block_taken = self._blocks.get() is None

    def _record_until_closed(self) -> None:
        waiting: list[EpisodeColumns] = []
        waiting_bytes, since = 0, time.monotonic()
        while not self._last_block_taken:
            try:
                block = self._blocks.get(timeout=_PASS_ON_SECONDS)
            except queue.Empty:
                block = []
            if isinstance(block, Timestep):
                self._cutter.begin(block)
            elif block and not self._full:
                for episode in self._cutter.cut(block):
                    if not waiting:
                        since = time.monotonic()
                    waiting.append(episode)
                    waiting_bytes += episode.nbytes
            self._last_block_taken = block is None
            late = time.monotonic() - since > _PASS_ON_SECONDS or waiting_bytes > _PASS_ON_BYTES
            if waiting and (late or self._last_block_taken):
                self._full = not self._sink(waiting) or self._full
                waiting, waiting_bytes = [], 0


class RecordedEnvironment(EnvironmentWrapper):
    """Records what happens in a batch of environments.

    Args:
      environment: the batch.
      recorder: records its episodes; closed with the batch.
    """

    def __init__(self, environment: BatchedEnvironment, recorder: EpisodeRecorder):
        super().__init__(environment)
        self._recorder = recorder

    def reset(self) -> Timestep:
        timestep = super().reset()
        self._recorder.begin(timestep)
        return timestep

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)
        self._recorder.step(actions, timestep)
        return timestep

    def close(self) -> None:
        try:
            self._recorder.close()
        finally:
            super().close()
