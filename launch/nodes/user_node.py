"""A node of one of Launchpad's own kinds, which a user has added to the program, under Callboard's launchers.

Launchpad's launchers run such a node without `UserNode`, but with its ports closed, see `ClosingProgram`.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp
from absl import flags
from launchpad.launch import worker_manager

from ...errors import CallboardError, type_text
from ..processes.listen_filter import PortGuard
from ..run_directory.layout import RunDirectory
from .launchpad_process import begin_on_this_path
from .node import NodeContext, NodeRules, ProgramNode

USER_NODE_RULES = NodeRules(stop_order=1)
"""How launchers treat a node of the user's own, unless it has an attribute `rules`: like an actor."""
_SETTLED_SECONDS = 10.0
"""Time after which an error of a node of the user's own may be a fault."""


class UserNode:
    """Runs a `lp.PyNode`, `lp.PyClassNode`, `lp.CourierNode` or `lp.ReverbNode` as launchers run a `ProgramNode`.

    In the node, `lp.stop_event()` and `lp.wait_for_stop()` report the end of the run, and `lp.stop()` ends it.

    Args:
      name: name of the node, for example `policy_lag/0`.
      node: the node.  Launchers treat it as its attribute `rules`, a `NodeRules`, prescribes, if it has one.
      hosts: see `NodeRules`.

    Raises:
      CallboardError: the node is of another kind.
    """

    def __init__(self, name: str, node: lp.PyNode, hosts: tuple[str, ...] | None = ()):
        if not isinstance(node, lp.PyNode) or isinstance(node, lp.MultiThreadingColocation):
            raise CallboardError(
                f"{name} is {type_text(node)}, which only Launchpad's own launchers can run: make it a PyNode, "
                "PyClassNode, CourierNode or ReverbNode"
            )
        self.name = name
        self.rules: NodeRules = dataclasses.replace(_rules_of(node), hosts=hosts)
        self.addresses: list[lp.Address] = node.addresses
        self._node = node

    def move_to(self, directory: RunDirectory) -> None:
        """Does nothing: the node does not write to the run directory."""

    def run_node(self, context: NodeContext) -> None:
        """Runs one incarnation of the node as Launchpad does.

        Returns once the node's function has returned and the run is ending: a node that has done its work is not
        restarted.
        """
        # Launchpad reads its flags here, which a program with flags of its own has parsed, and others have not.
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        kind = lp.LaunchType.LOCAL_MULTI_THREADING if context.one_process else lp.LaunchType.LOCAL_MULTI_PROCESSING
        stop_run = functools.partial(context.send, "stop", f"{self.name} has called launchpad.stop()")
        self._node.launch_context.initialize(kind, None, stop_run)
        # Where `lp.stop_event` looks; Launchpad's own `WorkerManager` would take over the signals of the process.
        worker_manager._WORKER_MANAGERS.manager = _StopNotice(context.stop)
        # A `PyClassNode` keeps its object, but each incarnation needs its own.
        self._node._instance = None
        context.progress.waits("its own code")
        settled = threading.Timer(_SETTLED_SECONDS, context.progress.achieves)
        settled.daemon = True
        settled.start()
        context.guard.allow(self.rules.hosts)
        function = self._node.function
        if isinstance(function, ClosedFunction):
            function = function.function
        _run_closed(function, self.addresses, context.guard, context.stop)
        context.progress.waits("the end of the run")
        context.stop.wait()


class ClosingProgram(lp.Program):
    """A program whose nodes begin on the path of this process, and close their ports to other machines.

    Those of Launchpad's own kinds close them where Launchpad itself runs them, also in a process of their own;
    `UserNode` does it under other launchers.

    Args:
      name: name of the program.
      hosts: see `NodeRules`.
    """

    def __init__(self, name: str, hosts: Sequence[str] | None):
        super().__init__(name)
        self._hosts = hosts

    def add_node(self, node: Any, label: str | None = None) -> Any:
        if isinstance(node, lp.PyNode) and not isinstance(node, ProgramNode):
            node._partial_function = ClosedFunction(node._partial_function, node.addresses, self._hosts)
        if isinstance(node, lp.PyNode):
            begin_on_this_path(node)
        return super().add_node(node, label)


@dataclasses.dataclass(frozen=True)
class ClosedFunction:
    """The function of a node, which closes the ports of the node's addresses as soon as it listens on them."""

    function: Callable[[], Any]
    addresses: Sequence[lp.Address]
    hosts: Sequence[str] | None

    def __call__(self) -> Any:
        return _run_closed(self.function, self.addresses, PortGuard(self.hosts), threading.Event())


def _run_closed(
    function: Callable[[], Any], addresses: Sequence[lp.Address], guard: PortGuard, stop: threading.Event
) -> Any:
    """Calls a node's function, and closes the ports of its addresses as soon as it listens on them."""
    ports = [lp.get_port_from_address(address.resolve()) for address in addresses]
    guard.close_when_open(ports, stop)
    return function()


class _StopNotice:
    """The part of Launchpad's `WorkerManager` that nodes use."""

    def __init__(self, stop: threading.Event):
        self._stop = stop

    def stop_event(self) -> threading.Event:
        return self._stop

    def wait_for_stop(self, timeout_secs: float | None = None) -> Any:
        return self._stop.wait(timeout_secs)


def _rules_of(node: lp.PyNode) -> NodeRules:
    """Returns the rules that the user has set for a node, in Callboard 0.2 as `policy`, or those of all such nodes."""
    earlier = getattr(node, "policy", None)
    return getattr(node, "rules", earlier if isinstance(earlier, NodeRules) else USER_NODE_RULES)
