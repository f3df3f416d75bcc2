"""The threads launcher: every node in its own thread, with Courier and Reverb connections as between processes."""

import functools
import queue

import launchpad as lp

from ..experiments.checked_run import Run
from ..experiments.run_files import begun
from ..program_nodes import nodes_of
from .addresses import reserved_ports
from .node_thread import ThreadWorker
from .one_process_logs import logged_in
from .run_outcome import Monitor, Outcome
from .supervision.supervisor import Event, Supervised, Supervisor


def run(program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
    """Runs the program to its end, in threads of this process."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with reserved_ports(program) as ports, begun(run), logged_in(run):
        nodes = [
            Supervised(
                node.name,
                node.rules,
                functools.partial(ThreadWorker, node.name, node.run_node, ports[node.name], events),
                can_be_killed=False,
            )
            for _, node in nodes_of(program)
        ]
        return Supervisor(nodes, events, monitor).run()
