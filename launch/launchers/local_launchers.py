"""The launchers of one machine: `inline`, `threads` and `processes`.

What they run is in the modules of those names, which import TensorFlow.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...errors import CallboardError
from ..experiment import Experiment, Run
from .forkserver import start_forkserver
from .launcher import Launcher
from .run_outcome import Monitor, Outcome

if TYPE_CHECKING:
    import launchpad as lp


@dataclasses.dataclass(frozen=True)
class InlineLauncher(Launcher):
    """All nodes in turn, in one thread of this process, with the same result in every run."""

    name = "inline"
    in_this_process = True

    def check(self, experiment: Experiment) -> None:
        super().check(experiment)
        if experiment.replay_shards > 1:
            raise CallboardError(
                f"the inline launcher has one replay server in its process; set replay_shards to 1, not "
                f"{experiment.replay_shards}, or use --launcher threads or processes"
            )

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import inline

        return inline.run(program, run, monitor)


@dataclasses.dataclass(frozen=True)
class ThreadsLauncher(Launcher):
    """Every node in a thread of this process."""

    name = "threads"
    in_this_process = True

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import threads

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
