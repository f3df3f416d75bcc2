"""The launchpad launcher: one of Launchpad's own local launchers, with the run directory and display of the others."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import psutil

from ...runtime.deadlines import Deadline
from ..experiments.checked_run import Run
from ..experiments.run_files import begun
from ..processes.stop_signals import stop_signals
from .launcher import Launcher
from .run_outcome import Monitor, Outcome, error_text

if TYPE_CHECKING:
    import launchpad as lp

_NOTICE_SECONDS = 60
"""Time between a signal and the moment at which Launchpad kills the nodes; it covers the last checkpoint."""
_START_SECONDS = 5.0
"""The same time for nodes that are starting, and have nothing to save."""


@dataclasses.dataclass(frozen=True)
class LaunchpadLauncher(Launcher):
    """Launchpad's own launchers: every node in a thread or a process of this machine, without restarts.

    Attributes:
      launch_type: `local_mt` runs all nodes in threads of this process, `local_mp` each in a process.
      terminal: where Launchpad shows the output of processes.
    """

    name = "launchpad"

    launch_type: Literal["local_mt", "local_mp"] = "local_mt"
    terminal: Literal["current_terminal", "output_to_files", "tmux_session", "xterm", "gnome-terminal"] = (
        "current_terminal"
    )

    @property
    def in_this_process(self) -> bool:  # type: ignore[override]
        """Whether all nodes run in the process that starts the run."""
        return self.launch_type == "local_mt"

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        import launchpad as lp

        from .supervision.remote_monitor import MonitorServer

        failure: BaseException | None = None
        server = MonitorServer(monitor)
        (coordinator,) = program.groups["coordinator"]
        coordinator.monitor_address = server.address
        coordinator.signals_launchpad = threading.current_thread() is threading.main_thread()
        try:
            with begun(run), launchpad_signals() as signals:
                manager = lp.launch(
                    program,
                    launch_type=self.launch_type,
                    local_resources=None if self.in_this_process else _resources(program),
                    terminal=self.terminal,
                )
                try:
                    with _ended_by_signals(manager, signals):
                        manager.wait()
                except Exception as error:
                    failure = error
                    manager.wait(raise_error=False)
            outcome = server.outcome
        finally:
            server.close()
        if outcome.failed_node is None and failure is None and signals and (outcome.exit_code or not outcome.ended):
            outcome.reason, outcome.exit_code = "", 0
            outcome.interrupted(signals[0])
        elif outcome.failed_node is None and (failure is not None or not outcome.ended):
            outcome.failed("launchpad", "the coordinator has died" if failure is None else error_text(failure))
        return outcome


def _resources(program: lp.Program) -> dict[str, Any]:
    """Returns the flags and the environment of all processes, by group."""
    from absl import flags
    from launchpad.nodes.python.local_multi_processing import PythonProcess

    if "lp_dummy_config" not in flags.FLAGS:
        # Launchpad needs it to pass on flags, but does not define it in this version.
        flags.DEFINE_string("lp_dummy_config", "", "")
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return {
        label: PythonProcess(args={"lp_termination_notice_secs": _NOTICE_SECONDS}, env=environment)
        for label in program.groups
    }


@contextlib.contextmanager
def _ended_by_signals(manager: Any, signals: list[int]) -> Iterator[None]:
    """Ends the nodes when a signal arrives within the context, outside the main thread: Launchpad handles none there.

    A session sends one while its nodes are starting, when there is nothing to save: those that do not end are killed.

    Args:
      manager: Launchpad's worker manager.
      signals: the signals that arrive are added.
    """
    if threading.current_thread() is threading.main_thread():
        yield
        return
    over = threading.Event()

    def end_nodes() -> None:
        deadline = Deadline(_START_SECONDS)
        while not over.is_set():
            with manager._mutex:
                # Again and again, because processes ignore SIGTERM until they have started.
                manager._stop()
                nodes = [node for group in manager._active_workers.values() for node in group]
            for node in nodes:
                if deadline.has_passed and isinstance(node, psutil.Process):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        manager._kill_process_tree(node.pid)
            over.wait(1.0)

    def end(number: int) -> None:
        signals.append(number)
        threading.Thread(target=end_nodes, name="end of nodes", daemon=True).start()

    with stop_signals(end):
        try:
            yield
        finally:
            over.set()


@contextlib.contextmanager
def launchpad_signals() -> Iterator[list[int]]:
    """Lets Launchpad handle signals within the context; yields a list of those that arrive.

    Launchpad installs its handlers once in a process, and only in the main thread, and never removes them.
    """
    from absl import flags
    from launchpad.launch import worker_manager

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    notice = flags.FLAGS["lp_termination_notice_secs"]
    in_main_thread = threading.current_thread() is threading.main_thread()
    # Launchpad waits by means of SIGALRM, which would end the process.
    notice_before, notice.value = notice.value, _NOTICE_SECONDS if in_main_thread else -1
    # With a table of handlers, Launchpad does not install its own, which is possible in the main thread only.
    worker_manager._SIGNAL_HANDLERS = None if in_main_thread else {number: set() for number in signal.Signals}
    worker_manager._HAS_MAIN_MANAGER = False
    arrived: list[int] = []

    def note(number: int) -> None:
        arrived.append(number)
        if number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):  # Launchpad does not handle them.
            os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGQUIT, signal.SIGALRM)}
    try:
        with stop_signals(note):
            yield arrived
    finally:
        if in_main_thread:
            for number, handler in before.items():
                signal.signal(number, handler)
        notice.value = notice_before
