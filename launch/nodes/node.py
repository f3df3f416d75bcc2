"""The base class of nodes, the context a launcher gives them, and their place in a Launchpad program."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import courier
import launchpad as lp
from courier.python.client import StatusNotOk
from launchpad.address import AbstractAddressBuilder
from launchpad.nodes import base as lp_base
from pybind11_abseil.status import StatusCode

from ..processes.listen_filter import PortGuard
from ..run_directory.layout import RunDirectory
from .progress import Progress
from .proxy_bypass import bypass_proxies

_CALL_SECONDS = 5.0

Unreachable = StatusNotOk
"""Raised by a call over Courier if the other side does not answer in time, or its method raised."""
# The package that it names cannot be imported, so no process could unpickle a node of a script that handles this error.
Unreachable.__module__ = "courier.python.client"


@dataclasses.dataclass(frozen=True)
class NodeContext:
    """Objects that a launcher passes to a node when it starts it."""

    name: str
    """For example `actor/0`."""
    incarnation_id: str
    """Id of this incarnation, unique over all runs: it distinguishes a restarted node from its predecessor."""
    stop: threading.Event
    """Set when the node has to end."""
    send: Callable[[str, Any], None]
    """Sends a message `(kind, content)` to the launcher; see `launchers.supervisor`."""
    port: int | None
    """The port that this node binds, on all interfaces; None if it must not bind one."""
    cooperative: bool = False
    """Whether all nodes share one thread (the inline launcher): no node may then wait for another."""
    one_process: bool = False
    """Whether all nodes share one process."""
    progress: Progress = dataclasses.field(default_factory=Progress)
    """Where the node marks what it is doing, so that the launcher can detect a node that hangs."""
    guard: PortGuard = dataclasses.field(default_factory=PortGuard)
    """Closes the node's ports to machines that are not part of the run."""

    def notify(self, text: str) -> None:
        """Sends a line of text to the user."""
        self.send("message", text)


class Served(Protocol):
    """A part of a node with methods that other nodes may call."""

    served: ClassVar[tuple[str, ...]]
    """Names of those methods."""


class Node:
    """A kind of node: one setup, then one bounded step after another until `context.stop` is set.

    Launchers with a thread or a process per node call `run`; the inline launcher calls `setup`, `step` and `finish`
    itself.
    """

    served: ClassVar[tuple[str, ...]] = ()
    """Names of the methods that other nodes may call."""
    has_server: ClassVar[bool] = False
    """Whether `NodeContext.port` is that of a server of the node's own.  Its methods are then served at another
    address, `ProgramNode.methods_address`, or not at all."""

    achieves_by_steps: ClassVar[bool] = True
    """Whether each `step` achieves something, see `Progress.achieved`; if not, the node itself says when."""

    def __init__(self, context: NodeContext):
        self.context = context

    def serve(self, part: "Served") -> None:
        """Serves the methods of a part of this node as its own; `served` of the node's class names them, too."""
        for name in part.served:
            setattr(self, name, getattr(part, name))

    def setup(self) -> None:
        """Builds what `step` needs; may wait for other nodes as long as it checks `context.stop`."""

    def between_steps(self) -> None:
        """Does, in the main loop, what was requested from outside; called before every step."""

    def step(self) -> None:
        """Does one unit of work, of at most about a second.

        Marks in `context.progress` work that may hang, and waiting for other nodes.
        """

    def finish(self) -> None:
        """Shuts down cleanly.  Called only if neither `setup` nor `step` has failed."""

    def release(self) -> None:
        """Ends servers and threads that would outlive a failed node if its process continues; may be called twice."""

    def run(self) -> None:
        try:
            self.setup()
            while not self.context.stop.is_set():
                self.context.progress.begins_step()
                self.between_steps()
                self.step()
                if self.achieves_by_steps:
                    self.context.progress.achieves()
            self.context.progress.works_slowly("ending")
            self.finish()
        except BaseException:
            self.release()
            raise


@dataclasses.dataclass(frozen=True)
class NodeRules:
    """How a launcher treats a node.

    Attributes:
      stop_order: nodes with lower numbers are stopped first; the next ones are stopped once those have ended.
      keeps: whether the node saves something when it ends, so that an error then fails the run.
      restart_group: nodes of the same group are ended and restarted together when one of them dies.
      grace: seconds a node has to end after it was requested to stop.
      restarts: number of times a node may die within `restart_window` seconds before the run fails.
      restart_window: seconds.
      uses_gpu: whether the node sees GPUs.
      gpus: those that it sees, as `CUDA_VISIBLE_DEVICES` names them; None for all that its launcher sees.
      tensorflow_threads: number of TensorFlow threads; 0 leaves the choice to TensorFlow.
      single_arena: whether all threads of the node's process allocate memory from one arena; see `malloc_arenas`.
      timeout: seconds without progress, or without a heartbeat, after which the node is treated as dead.
      log_level: the least important messages that the node's process logs.
      hosts: IP addresses of the run's other machines, whose packets the node's ports accept; None for all machines.
    """

    stop_order: int
    keeps: bool = False
    restart_group: str = ""
    grace: float = 10.0
    restarts: int = 3
    restart_window: float = 60.0
    uses_gpu: bool = False
    gpus: str | None = None
    tensorflow_threads: int = 1
    single_arena: bool = False
    timeout: float = 300.0
    log_level: str = "info"
    hosts: tuple[str, ...] | None = ()


NodePolicy = NodeRules
"""Its name in Callboard 0.2, for programs that import it."""


class LaunchedNode(Protocol):
    """A node of a program, as a launcher sees it: a `ProgramNode`, or a `UserNode` around a node of the user's own."""

    name: str
    rules: NodeRules
    addresses: list[lp.Address]
    """All addresses that the node serves; `NodeContext.port` is the port of the first."""

    def run_node(self, context: NodeContext) -> None:
        """Runs one incarnation of the node to its end."""

    def move_to(self, directory: RunDirectory) -> None:
        """Makes the node write to another run directory; must be called before `run_node`."""


class FixedAddress(AbstractAddressBuilder):
    """A Launchpad address that is already known."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address


def fixed_address(known: str) -> lp.Address:
    """Returns an address that is bound to a `host:port` string."""
    address = lp.Address("fixed")
    address.bind(FixedAddress(known))
    return address


class NodeHandle(lp_base.Handle[Any]):
    """Reaches another node.  Create clients anew when needed: an address is valid only until its node moves."""

    def __init__(self, name: str, address: lp.Address, methods_address: lp.Address | None = None):
        self.name = name
        self._address = address
        self._methods_address = methods_address or address
        self._direct: tuple[str, ...] = ()
        """The addresses to which no connection goes through a proxy."""
        self._local: Node | None = None

    def bind_local(self, role: Node) -> None:
        """Makes `client` return the node object itself, for nodes that share a thread."""
        self._local = role

    def address(self) -> str:
        """Returns the node's current `host:port`."""
        return self._resolved(self._address)

    def _resolved(self, of: lp.Address) -> str:
        address = of.resolve()
        if address not in self._direct:
            bypass_proxies(address.rpartition(":")[0])
            self._direct = (address, *self._direct[:1])
        return address

    def client(self, timeout: float) -> Any:
        """Returns a Courier client whose calls raise `Unreachable` after `timeout` seconds.

        Arguments must be plain Python values, because a call with NumPy arguments hangs; results may hold NumPy arrays.
        """
        if self._local is not None:
            return self._local
        return courier.Client(self._resolved(self._methods_address), call_timeout=timeout)

    def dereference(self) -> "NodeClient":
        """Returns the client that a node of the user's own receives instead of this handle."""
        return NodeClient(self)

    def __getstate__(self) -> dict[str, Any]:
        # Another process has environment variables of its own.
        return {**self.__dict__, "_direct": (), "_local": None}


class NodeClient:
    """Calls the served methods of a node by their names; the methods raise `Unreachable` if it does not answer in time.

    Unlike a `courier.Client`, it finds a node that has moved: after a failed call, the next one resolves the address
    again.  A method that the node does not serve raises an `AttributeError`.

    Args:
      handle: handle of the node.
      timeout: seconds that a call waits for an answer, 5 by default.
    """

    def __init__(self, handle: NodeHandle, timeout: float = _CALL_SECONDS):
        self._handle = handle
        self._timeout = timeout
        self._client: Any = None

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*arguments: Any, **named: Any) -> Any:
            client = self._client = self._client or self._handle.client(self._timeout)
            try:
                return getattr(client, method)(*arguments, **named)
            except Unreachable as error:
                self._client = None
                if getattr(error, "code", None) == StatusCode.NOT_FOUND:
                    raise AttributeError(f"{self._handle.name} serves no method {method!r}") from error
                raise

        return call

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


class ProgramNode(lp.PyClassNode):
    """A node of a Launchpad program that runs a `Node`.

    Args:
      name: name of the node, for example `actor/0`.
      role: the `Node` class, called with `context` and `arguments`.
      rules: how launchers treat the node.
      further_addresses: addresses it serves besides that of its port; `addresses` holds all, that one first.
      methods_address: address of its methods, if its port is that of a server of its own; None if it serves none then.
      arguments: keyword arguments; handles among them are the edges of the graph.
    """

    def __init__(
        self,
        name: str,
        role: type[Node],
        rules: NodeRules,
        further_addresses: Sequence[lp.Address] = (),
        methods_address: lp.Address | None = None,
        **arguments: Any,
    ):
        super().__init__(role, **arguments)
        self.name = name
        self.rules = rules
        self._role = role
        self._arguments = arguments
        self.port_address = lp.Address("callboard")
        self.allocate_address(self.port_address)
        self.methods_address = methods_address
        for address in (*further_addresses, *([methods_address] if methods_address else [])):
            self.allocate_address(address)

    def create_handle(self) -> NodeHandle:
        return self._track_handle(NodeHandle(self.name, self.port_address, self.methods_address))

    def give(self, **arguments: Any) -> None:
        """Adds arguments for the `Node`; must be called before `make_node`."""
        self._arguments |= arguments

    def move_to(self, directory: RunDirectory) -> None:
        """Makes the node write to another run directory; must be called before `make_node`."""
        run = self._arguments["run"]
        self._arguments["run"] = dataclasses.replace(run, directory=directory.of_policy(run.policy))

    def make_node(self, context: NodeContext) -> Node:
        context.guard.allow(self.rules.hosts)
        return self._role(context=context, **self._arguments)

    def run_node(self, context: NodeContext, also_served: Sequence[Callable[..., Any]] = ()) -> None:
        """Runs the node to its end, and serves its methods and `also_served` if there are any."""
        role = self.make_node(context)
        served = role.served if self.methods_address or not role.has_server else ()
        methods = [*(getattr(role, method) for method in served), *also_served]
        if not methods:
            role.run()
            return
        address = self.methods_address
        server = courier.Server(port=lp.get_port_from_address(address.resolve()) if address else context.port)
        for method in methods:
            server.Bind(method.__name__, method)
        server.Start()
        context.guard.close(server.port)
        try:
            role.run()
        finally:
            server.Stop()
            server.Join()
