"""Single Gymnasium environments as a batch: wrapped by name, and in processes of their own if that is wanted."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.utils import create_shared_memory

from ...data import Nest, Timestep
from ...errors import CallboardError, ProcessEnded
from ...runtime.descendants import adopt_orphans, descendants, end_descendants, end_processes, running
from ...runtime.interpreter import program_not_run_again, spawning_on_this_path
from ..batches.batched import BatchedEnvironment
from .gymnasium_batch import GymnasiumBatch
from .gymnasium_checks import CheckedSteps, check_has
from .gymnasium_vector_batch import GymnasiumVectorBatch, WaitingEnvironment
from .gymnasium_wrappers import NamedWrapper, read_wrappers, wrapped

WRAPPERS, PROCESSES = "env_wrappers", "env_processes"
"""Options of every environment that Callboard takes itself."""

_END_SECONDS = 10.0


class Singles(NamedTuple):
    """How single Gymnasium environments are wrapped and stepped."""

    wrappers: tuple[NamedWrapper, ...] = ()
    """The wrappers of each environment, the innermost first."""
    processes: bool = False
    """Whether each environment has a process of its own."""

    @property
    def wanted(self) -> bool:
        """Whether anything here needs single Gymnasium environments."""
        return bool(self.wrappers) or self.processes


def split_singles(options: Mapping[str, Any]) -> tuple[Singles, dict[str, Any]]:
    """Returns the settings in the options `env_wrappers` and `env_processes`, and the other options.

    Raises:
      CallboardError: a wrapper is unknown or does not take its arguments, or a value is of the wrong type.
    """
    others = dict(options)
    wrappers, processes = others.pop(WRAPPERS, ()), others.pop(PROCESSES, False)
    if not isinstance(processes, bool):
        raise CallboardError(f"{PROCESSES} must be true or false, not {processes!r}")
    return Singles(read_wrappers(wrappers), processes), others


def refuse_singles(name: str, singles: Singles, fix: str) -> None:
    """Raises `CallboardError` if wrappers or processes are wanted of an environment without single Gymnasium ones."""
    if singles.wanted:
        raise not_of_singles(name, fix, PROCESSES if singles.processes else WRAPPERS)


def not_of_singles(name: str, fix: str, setting: str = WRAPPERS) -> CallboardError:
    """Returns the error for a setting of single Gymnasium environments, of which an environment is not made."""
    return CallboardError(f"environment {name!r} is not made of single Gymnasium environments: {fix} {setting} out")


def check_distinct(name: str, environments: Sequence[Any]) -> None:
    """Raises `CallboardError` if environments of a factory are one object."""
    if len({id(environment) for environment in environments}) < len(environments):
        raise CallboardError(f"environment {name!r}: the factory gives the same object twice, make it anew")


def make_batch(
    create: Callable[[int], gymnasium.Env],
    seeds: Sequence[int],
    singles: Singles,
    name: str,
    first: gymnasium.Env | None = None,
) -> BatchedEnvironment:
    """Makes a batch of single Gymnasium environments.

    Args:
      create: makes the environment of an index in the batch, without its wrappers.
      seeds: one seed per environment.
      singles: how they are wrapped and stepped.
      name: name of the environment, for messages.
      first: environment 0, if it has been made already.

    Raises:
      CallboardError: `create` gives one object twice, or a wrapper does not fit.
    """
    with contextlib.ExitStack() as opened:
        batch: BatchedEnvironment
        if singles.processes:
            batch = ProcessBatch(create, seeds, singles.wrappers, name, first)
        else:
            environments: list[gymnasium.Env] = []
            for index in range(len(seeds)):
                own = first if index == 0 and first is not None else create(index)
                opened.callback(own.close)
                environments.append(own)
            check_distinct(name, environments)
            batch = GymnasiumBatch([wrapped(environment, singles.wrappers) for environment in environments], seeds)
        opened.pop_all()
        return batch


class ProcessBatch(GymnasiumVectorBatch):
    """Single Gymnasium environments, each in a process of its own, stepped at the same time.

    For simulators that take milliseconds per step: a step of a fast environment takes less time than the messages to
    its process.  Timesteps are those of `GymnasiumBatch`.  The processes import the environment's module, and end with
    the process that made them, however that ends.
    """

    def __init__(
        self,
        create: Callable[[int], gymnasium.Env],
        seeds: Sequence[int],
        wrappers: Sequence[NamedWrapper] = (),
        name: str = "",
        first: gymnasium.Env | None = None,
    ):
        """Starts one process per seed; `close` ends them.

        Args:
          create: makes the environment of an index in the batch; it is pickled with cloudpickle.
          seeds: one seed per environment.
          wrappers: wrappers of each environment, the innermost first.
          name: name of the environment, for messages.
          first: an environment that shows the spaces, and is closed; one is made if it is None.

        Raises:
          CallboardError: the environment cannot be pickled, or its spaces are not supported.
        """
        self._name = name
        shown = wrapped(create(0) if first is None else first, wrappers)
        with contextlib.closing(shown):
            check_has(shown, ("observation_space", "action_space"))
            makers = [_Maker(create, index, wrappers, shown if index == 0 else None) for index in range(len(seeds))]
            self._processes: Any = None
            # A fork would copy the locks of TensorFlow's and gRPC's threads.
            with spawning_on_this_path(), program_not_run_again():
                self._processes = AsyncVectorEnv(makers, _fits_shared_memory(shown), copy=False, context="spawn")
        super().__init__(self._processes, seeds)

    @property
    def environments(self) -> Sequence[Any]:
        # They are objects of other processes, which the vector environment's `call` reaches.
        return (self._processes,)

    def reset(self) -> Timestep:
        with self._process_errors():
            return super().reset()

    def step(self, actions: Nest) -> Timestep:
        with self._process_errors():
            return super().step(actions)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            alive = [process.pid for process in self._processes.processes if process.is_alive()]
            started = [process for pid in alive for process in descendants(pid)]
            # A process that has ended does not answer; the others are then ended too.
            try:
                self._processes.close(timeout=_END_SECONDS, terminate=len(alive) < self.batch_size)
            except (EOFError, BrokenPipeError, ConnectionResetError):  # One has ended meanwhile.
                self._processes.close(timeout=_END_SECONDS, terminate=True)
            # Those of a process that was terminated before it could end them.
            end_processes(lambda: running(started))

    @contextlib.contextmanager
    def _process_errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            processes = self._processes.processes
            for process in processes:
                process.join(timeout=0.1)
            ended = {index: process.exitcode for index, process in enumerate(processes) if not process.is_alive()}
            codes = ", ".join(f"{index} (exit code {code})" for index, code in ended.items())
            raise ProcessEnded(f"processes of environment {self._name!r} have ended: {codes or 'unknown'}") from error


class _Maker:
    """Makes and wraps an environment, in its process; in this process it returns the one that shows the spaces."""

    def __init__(
        self,
        create: Callable[[int], gymnasium.Env],
        index: int,
        wrappers: Sequence[NamedWrapper],
        shown: gymnasium.Env | None,
    ):
        self._create = create
        self._index = index
        self._wrappers = [(wrapper.name, wrapper.kind, wrapper.arguments) for wrapper in wrappers]
        self._shown = shown

    def __call__(self) -> gymnasium.Env:
        if self._shown is not None:
            return self._shown
        # Signals to the process group are the business of the process that made this one, which then ends it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Gymnasium starts a daemon, which `multiprocessing` does not let start what an environment may start.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        adopt_orphans()
        own = wrapped(self._create(self._index), [NamedWrapper(*wrapper) for wrapper in self._wrappers])
        return CheckedSteps(WaitingEnvironment(_InOwnProcess(own)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shown": None}


class _InOwnProcess(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose process ends what it has started: it would otherwise wait for such a process at its end."""

    def close(self) -> None:
        try:
            super().close()
        finally:
            end_descendants(os.getpid())


def _fits_shared_memory(environment: gymnasium.Env) -> bool:
    """Returns whether the observations have a fixed size, as arrays in memory that processes share must have."""
    try:
        create_shared_memory(environment.observation_space, 1)
    except (CustomSpaceError, TypeError):
        return False
    return True
