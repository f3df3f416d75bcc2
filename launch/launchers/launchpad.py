"""The launchpad launcher: one of Launchpad's own local launchers, with the run directory and display of the others."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from ..checked_run import Run
from ..import_path import library_path
from ..run_directory.run_files import begun
from ..stop_signals import stop_signals
from .launcher import Launcher
from .run_outcome import GuardedMonitor, Monitor, Outcome, error_text

if TYPE_CHECKING:
    import launchpad as lp

_NOTICE_SECONDS = 60
"""Time between a signal and the moment at which Launchpad kills the nodes; it covers the last checkpoint."""


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

        from .remote_monitor import MonitorServer

        failure: BaseException | None = None

        def give_up(error: BaseException) -> None:
            nonlocal failure
            failure = failure or error
            os.kill(os.getpid(), signal.SIGTERM)

        server = MonitorServer(GuardedMonitor(monitor, give_up))
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
                    manager.wait()
                except Exception as error:
                    failure = failure or error
                    manager.wait(raise_error=False)
            outcome = server.outcome
        finally:
            server.close()
        if outcome.failed_node is None and (failure is not None or not outcome.ended):
            outcome.failed("launchpad", "the coordinator has died" if failure is None else error_text(failure))
        elif outcome.failed_node is None and outcome.exit_code and signals:
            outcome.reason, outcome.exit_code = "", 0
            outcome.interrupted(signals[0])
        return outcome


def _resources(program: lp.Program) -> dict[str, Any]:
    """Returns the flags and the environment of all processes, by group."""
    from absl import flags
    from launchpad.nodes.python.local_multi_processing import PythonProcess

    if "lp_dummy_config" not in flags.FLAGS:
        # Launchpad needs it to pass on flags, but does not define it in this version.
        flags.DEFINE_string("lp_dummy_config", "", "")
    environment = {"PYTHONPATH": os.pathsep.join(path for path in library_path() if path)}
    return {
        label: PythonProcess(args={"lp_termination_notice_secs": _NOTICE_SECONDS}, env=environment)
        for label in program.groups
    }


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
    notice_before, notice.value = notice.value, _NOTICE_SECONDS
    in_main_thread = threading.current_thread() is threading.main_thread()
    # With a table of handlers, Launchpad does not install its own, which is possible in the main thread only.
    worker_manager._SIGNAL_HANDLERS = None if in_main_thread else {number: set() for number in signal.Signals}
    worker_manager._HAS_MAIN_MANAGER = False
    arrived: list[int] = []

    def note(number: int) -> None:
        arrived.append(number)
        if number == signal.SIGHUP:  # Launchpad does not handle it.
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
