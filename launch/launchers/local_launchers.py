"""The launchers of one machine: `inline`, `threads` and `processes`.

What they run is in the modules of those names, which import TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import CallboardError
from ...messages.caller_words import argument
from ..experiments.checked_run import Run
from ..experiments.experiment import Experiment
from .launcher import Launcher
from .node_processes.forkserver import start_forkserver
from .run_outcome import Monitor, Outcome

if TYPE_CHECKING:
    import launchpad as lp


@dataclasses.dataclass(frozen=True)
class InlineLauncher(Launcher):
    """All nodes in turn, in one thread of this process, with the same result in every run.

    Attributes:
      eager: whether no function is compiled, so that a debugger can step through the agent's policy and loss.
    """

    name = "inline"
    in_this_process = True
    one_thread = True
    eager: bool = False

    def check(self, experiment: Experiment) -> None:
        super().check(experiment)
        if experiment.replay_shards > 1:
            raise CallboardError(
                f"the inline launcher has one replay server in its process; set replay_shards to 1, not "
                f"{experiment.replay_shards}, or use {argument('launcher', 'threads')} or "
                f"{argument('launcher', 'processes')}"
            )

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import inline

        with _eager_or_compiled(self.eager, program):
            return inline.run(program, run, monitor)


@dataclasses.dataclass(frozen=True)
class ThreadsLauncher(Launcher):
    """Every node in a thread of this process.

    Attributes:
      eager: whether no function is compiled, so that a debugger can step through the agent's policy and loss.
    """

    name = "threads"
    in_this_process = True
    eager: bool = False

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import threads

        with _eager_or_compiled(self.eager, program):
            return threads.run(program, run, monitor)


@dataclasses.dataclass(frozen=True)
class ProcessesLauncher(Launcher):
    """Every node in a process of its own on this machine, supervised and restarted."""

    name = "processes"

    def prepare(self) -> None:
        start_forkserver()

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import processes

        return processes.run(program, run, monitor)


@contextlib.contextmanager
def _eager_or_compiled(eager: bool, program: lp.Program) -> Iterator[None]:
    """Within the context, compiles nothing if `eager`; a node that stands in a debugger then does not count as dead."""
    if not eager:
        yield
        return
    from ...agents.fast_function import eager_functions
    from ..program_nodes import nodes_of

    for _, node in nodes_of(program):
        node.rules = dataclasses.replace(node.rules, timeout=math.inf)
    with eager_functions():
        yield
