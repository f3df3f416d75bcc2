"""Records the episodes of a batch of environments in a thread of its own, and passes them on."""

import collections
import threading
import time
from collections.abc import Callable, Sequence

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, EnvironmentWrapper
from ..batches.infos import Infos
from .chosen_infos import ChosenInfos, InfoColumns
from .episode_columns import EpisodeColumns
from .episode_cutter import NO_INFOS, EpisodeCutter, Step, observation_bytes

_PASS_ON_BYTES = 2**24
_PASS_ON_SECONDS = 1.0
_BLOCK_STEPS = 64
_BLOCK_BYTES = 2**22
_BLOCK_SECONDS = 0.5
"""A block of timesteps goes to the thread after this time, also if it is not full."""
_WAITING_BLOCKS = 8
"""Number of blocks that may wait for the thread."""
_WAITING_BYTES = 2**22
"""About how much memory more blocks may take, which are small; a node that ends has to write all of them."""
_STEP_BYTES = 2**11
"""Memory of a timestep besides its observations and infos."""

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
      infos: chooses the infos that are recorded; None for none.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        seeds: Sequence[int | None],
        sink: Sink,
        notify: Callable[[str], object] = lambda text: None,
        quota: int | None = None,
        infos: ChosenInfos | None = None,
    ):
        self._infos = infos
        columns = None if infos is None else InfoColumns(infos.names, infos.environment)
        self._cutter = EpisodeCutter(spec, seeds, notify, quota, columns)
        self._sink = sink
        self._block: list[Step] = []
        self._block_steps = 1
        self._step_bytes = 0
        self._block_ends = 0.0
        self._full = False
        self._failure: BaseException | None = None
        self._last_block_taken = False
        self._blocks = _WaitingBlocks()
        self._thread = threading.Thread(target=self._record, name="episodes", daemon=True)
        self._thread.start()

    def begin(self, timestep: Timestep, infos: Infos | None = None) -> None:
        """Takes the first timestep of all environments, and its infos; open episodes are left out."""
        self._hand_over()
        chosen = NO_INFOS if self._infos is None or infos is None else self._infos.begin(infos)
        row_bytes = observation_bytes(timestep)
        self._blocks.put(Step(None, timestep, chosen), row_bytes)
        self._block_steps = min(max(_BLOCK_BYTES // row_bytes, 1), _BLOCK_STEPS)
        self._step_bytes = row_bytes + _STEP_BYTES

    def step(self, action: Nest, timestep: Timestep, infos: Infos | None = None) -> None:
        """Takes an action, and the timestep and the infos that followed.

        Waits if the sink is slower than the environments.
        """
        if self._failure is not None:
            raise self._failure
        if self._full:
            return
        chosen = NO_INFOS if self._infos is None or infos is None else self._infos.step(infos, timestep.first)
        self._block.append(Step(action, timestep, chosen))
        if len(self._block) >= self._block_steps or time.monotonic() > self._block_ends:
            self._hand_over()

    def close(self, timeout: float = 60.0) -> None:
        """Passes on all episodes that have ended."""
        self._hand_over()
        if self._infos is not None:
            self._infos.report_missing()
        self._blocks.put(None)
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure

    def _hand_over(self) -> None:
        """Gives the block to the thread."""
        if self._block:
            step_bytes = self._step_bytes + self._block[-1].infos.nbytes
            self._blocks.put(self._block, len(self._block) * step_bytes)
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
            block = self._blocks.get(_PASS_ON_SECONDS)
            if isinstance(block, Step):
                self._cutter.begin(block.timestep, block.infos)
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


class _WaitingBlocks:
    """Queue of the recorder's thread: first timesteps, blocks of steps, and None at the end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._blocks: collections.deque[tuple[Step | list[Step] | None, int]] = collections.deque()
        self._bytes = 0

    def put(self, block: Step | list[Step] | None, nbytes: int = 0) -> None:
        """Adds a block; waits while too many wait already."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._blocks) < _WAITING_BLOCKS or self._bytes < _WAITING_BYTES)
            self._blocks.append((block, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Step | list[Step] | None:
        """Returns the next block, or an empty one after a timeout in seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._blocks, timeout):
                return []
            block, nbytes = self._blocks.popleft()
            self._bytes -= nbytes
            self._changed.notify_all()
            return block


class RecordedEnvironment(EnvironmentWrapper):
    """Records what happens in a batch of environments.

    Args:
      environment: the batch.
      recorder: records its episodes; closed with the batch.  The batch must keep infos if it records some.
    """

    def __init__(self, environment: BatchedEnvironment, recorder: EpisodeRecorder):
        super().__init__(environment)
        self._recorder = recorder

    def reset(self) -> Timestep:
        timestep = super().reset()
        self._recorder.begin(timestep, self.infos)
        return timestep

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)
        self._recorder.step(actions, timestep, self.infos)
        return timestep

    def close(self) -> None:
        try:
            self._recorder.close()
        finally:
            super().close()
