"""The launcher protocol: what runs a program, where its nodes run, and which experiments it refuses.

To add a launcher:

1. Write a frozen dataclass that extends `Launcher`.  Its fields are the launcher's options, on the command line and in
   Python; each has a line under `Attributes` in the docstring, which is its help.
2. Implement `run`.  Import what it needs inside the method: options are parsed, and wrong ones are refused, before
   TensorFlow is imported.
3. Use it by its path, `--launcher package.module:Class`.  One that belongs to Callboard also gets a line in
   `registry.LAUNCHERS`, and its name is then `--launcher NAME`.

`docs/guides/launcher.md` builds one step by step.
"""

from __future__ import annotations

import abc
import contextlib
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ...errors import CallboardError
from ...messages.caller_words import argument
from ...settings.setting_arguments import check_argument_names
from ...settings.setting_types import check_ranges
from ..experiments.checked_run import Run
from ..experiments.experiment import Experiment
from ..experiments.new_or_resumed import check_state, find_run_directory
from ..processes.devices import parse_devices
from ..processes.memory_limits import check_addresses
from ..processes.temporary_files import removed_afterwards
from ..run_directory.directory_identity import held_directory
from ..run_directory.layout import RunDirectory
from ..run_directory.remote_storage import is_url
from ..run_directory.run_lock import run_lock
from .node_processes.forkserver import held_open
from .run_outcome import Monitor, Outcome

if TYPE_CHECKING:
    # Options are checked before TensorFlow is imported, which Launchpad needs.
    import launchpad as lp


REPORT_STEPS = 1000
"""Environment steps between two reports of nodes that take turns in one thread."""


class LocalNodes(NamedTuple):
    """The nodes of a run that are on this machine, and that can be checked here before the run starts."""

    learners: int
    """Number of learners that will run here; the machine must have their devices."""
    replay_shards: Sequence[int]
    """Replay shards whose checkpoints are in the run directory of this machine."""
    checkpoints: bool = True
    """Whether the checkpoints of the learner are in the run directory of this machine."""
    coordinator: bool = True
    """Whether the coordinator runs here; the machine must have the ports that it needs."""


LocalPart = LocalNodes
"""Its name in Callboard 0.2, for launchers that import it."""
_LOCAL_NODES_BEFORE = "local_part"
"""The name of `Launcher.local_nodes` in Callboard 0.2."""


class Launcher(abc.ABC):
    """Runs programs.  Subclasses are frozen dataclasses whose fields are the launcher's options.

    A field `strategy` becomes the option `--strategy` of `callboard train`, after `option_prefix`.  Ranges stand at the
    fields' annotations (`PositiveFloat`); other checks are in `__post_init__`, which extends the one here.
    """

    name: ClassVar[str]
    """Name in messages, and in the registry."""
    option_prefix: ClassVar[str] = ""
    """Beginning of the names of all options on the command line, such as `ray_`."""
    in_this_process: ClassVar[bool] = False
    """Whether all nodes run in the process that starts the run, as threads or in turn."""
    one_thread: ClassVar[bool] = False
    """Whether all nodes take turns in one thread, with a report after every `REPORT_STEPS` environment steps."""
    on_this_machine: ClassVar[bool] = True
    """Whether all nodes run on the machine that starts the run."""
    actors_come_and_go: ClassVar[bool] = False
    """Whether actors may join and leave a run, so that their number may be a range."""
    stores_at_urls: ClassVar[bool] = False
    """Whether the run directory may be a URL."""

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, **named: Any) -> Launcher:
            # Before the constructor of the dataclass, which knows no similar names.
            check_argument_names(cls, named)
            return super().__new__(cls)

    def __init_subclass__(cls) -> None:
        if _LOCAL_NODES_BEFORE in vars(cls):
            cls.local_nodes = vars(cls)[_LOCAL_NODES_BEFORE]  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        if not getattr(self, "name", ""):
            raise CallboardError(f"launcher {type(self).__name__} has no name; set `name` in the class")
        check_ranges(self, self.option_prefix)

    def fit(self, experiment: Experiment, given: Sequence[str] = ()) -> Experiment:
        """Returns the experiment with the fields that the launcher's options decide.

        Args:
          experiment: the experiment; its agent may be None.
          given: names of the fields that the user has set for this run.

        Raises:
          CallboardError: a given field contradicts the launcher's options.
        """
        return experiment

    def check(self, experiment: Experiment) -> None:
        """Refuses an experiment that the launcher cannot run.  Must not import TensorFlow.

        Args:
          experiment: the experiment; its agent may be None.

        Raises:
          CallboardError: the message says what to change.
        """
        check_addresses()
        if self.in_this_process and experiment.learners > 1:
            raise CallboardError(
                f"the {self.name} launcher has one process, and each of {experiment.learners} learners needs its own; "
                f"set learners to 1, or use {argument('launcher', 'processes')}"
            )
        if experiment.min_actors is not None and not self.actors_come_and_go:
            raise CallboardError(
                f"the {self.name} launcher starts all actors at once: set actors to a number, not "
                f"{experiment.min_actors}..{experiment.actors}, with min_actors null, or use "
                f"{argument('launcher', 'ray')} or {argument('launcher', 'hosts')}"
            )
        if experiment.policy_server is not None and (self.one_thread or not self.on_this_machine):
            raise CallboardError(
                f"the {self.name} launcher has no process on this machine that could serve policy_server; use "
                f"{argument('launcher', 'processes')}"
            )
        if not self.on_this_machine and parse_devices(experiment.learner_devices).are_all:
            raise CallboardError(
                "learner_devices 'all' is not known before a learner starts on its machine; set it to a number"
            )
        if not self.stores_at_urls and is_url(experiment.run_dir):
            raise CallboardError(
                f"the {self.name} launcher needs a run directory that is a path, not {experiment.run_dir}; set a path, "
                f"or use {argument('launcher', 'ray')}"
            )

    def check_directory(self, experiment: Experiment, resume: bool, agent: str = "", overwrite: bool = False) -> None:
        """Refuses a run directory that `open_directory` would refuse, if it is quick to find out.  Writes nothing.

        Args:
          experiment: the experiment; its agent may be None.
          resume: whether the directory must contain a run; otherwise it must not.
          agent: name of the agent, if the experiment has none yet.
          overwrite: whether a new run replaces one that is in the directory.

        Raises:
          CallboardError: the directory cannot be used.
        """
        find_run_directory(experiment, resume, agent, overwrite)

    @contextlib.contextmanager
    def open_directory(self, experiment: Experiment, resume: bool, overwrite: bool = False) -> Iterator[RunDirectory]:
        """Finds the run directory and locks it within the context.

        Args:
          experiment: the experiment.
          resume: whether the directory must contain a run; otherwise it must not.
          overwrite: whether a new run replaces one that is in the directory.

        Raises:
          CallboardError: the directory cannot be used, or is in use.
        """
        directory = find_run_directory(experiment, resume, overwrite=overwrite)
        with locked(directory, directory.lock(), self.name):
            # Another run may have started and ended since the directory was chosen.
            yield check_state(directory.identified(), experiment.run_dir or directory.path, resume, overwrite)

    def local_nodes(self, experiment: Experiment) -> LocalNodes:
        """Returns which nodes of the run are on this machine."""
        return LocalNodes(experiment.learners, range(experiment.replay_shards))

    def prepare(self) -> None:  # noqa: B027
        """Starts in the background what takes time, such as importing TensorFlow in another process.

        The command calls it when all options are valid, and then imports TensorFlow itself.
        """

    @abc.abstractmethod
    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        """Runs the program to its end.

        Args:
          program: the nodes of the run, see `program.make_program`.
          run: the checked experiment and its opened directory.
          monitor: receives status and messages.

        Returns:
          How the run ended.

        Raises:
          CallboardError: nothing was started, because of the problem that the message names.
        """


@contextlib.contextmanager
def locked(directory: RunDirectory, lock_file: pathlib.Path, launcher: str) -> Iterator[None]:
    """Locks a run directory within the context; its temporary files are removed before and after.

    Args:
      directory: the run directory.
      lock_file: the file to lock.
      launcher: name of the launcher, for the error message that a second run gets.
    """
    what = f"--launcher {launcher}"
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(run_lock(lock_file, what))
        stack.enter_context(held_directory(directory.path))
        stack.enter_context(held_open(lock))
        stack.enter_context(removed_afterwards(directory.temporary, [lock]))
        # Left by a launcher that was killed before it could remove it.
        shutil.rmtree(directory.temporary, ignore_errors=True)
        yield
