"""The host of a node in a Ray actor or task, and the handle through which other nodes call it."""

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray import cloudpickle, exceptions

from ....errors import CallboardError
from ....runtime.deadlines import Deadline, retry
from ...nodes.node import Node, NodeContext, NodeHandle, NodeRules, Unreachable
from ...nodes.proxy_bypass import bypass_proxies
from ...processes.listen_filter import PortGuard
from ...processes.ports import RAY_PORTS, reserve_among
from ..node_processes.prepared_process import prepare_libraries

CALL_SECONDS = 5.0
_START_SECONDS = 300.0
_ADDRESS_SECONDS = 0.25
_RESTARTING = (exceptions.ActorUnavailableError, exceptions.GetTimeoutError, exceptions.ObjectLostError)
"""Raised by calls while Ray restarts an actor.  The error of an actor that is dead for good is `ActorDiedError`."""


class RayClient:
    """Calls methods of a Ray actor, as in `client.method(argument)`, and waits for the results.

    Args:
      actor: handle of the Ray actor.
      timeout: seconds after which a call raises `Unreachable`, as it does while Ray restarts the actor.
    """

    def __init__(self, actor: Any, timeout: float):
        self._actor, self._timeout = actor, timeout

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return ray.get(getattr(self._actor, method).remote(*arguments, **named), timeout=self._timeout)
            except _RESTARTING as error:
                raise Unreachable(str(error)) from error

        return call


class RayHandle(NodeHandle):
    """Reaches a node in a Ray actor.

    Args:
      name: name of the node, for example `replay/0`.
      actor: handle of a Ray actor that has the node's methods.
    """

    def __init__(self, name: str, actor: Any):
        self.name, self.actor = name, actor
        self._known_address, self._lookup = "", Deadline(_ADDRESS_SECONDS)

    def client(self, timeout: float) -> Any:
        """Returns a client whose calls raise `Unreachable` after `timeout` seconds; arguments may be arrays."""
        return RayClient(self.actor, timeout)

    def address(self) -> str:
        """Returns the `host:port` that the node binds, looked up four times a second because Ray may restart it."""
        if not self._known_address:
            self._known_address = self.call_until_answered("address")
        elif self._lookup.has_passed:
            self._lookup.restart()
            with contextlib.suppress(Unreachable):
                self._known_address = self.client(_ADDRESS_SECONDS).address()
        bypass_proxies(self._known_address.rpartition(":")[0])
        return self._known_address

    def call_until_answered(self, method: str, *arguments: Any, seconds: float = _START_SECONDS) -> Any:
        """Returns the result of a call to a node that may be starting; the method may run several times.

        Raises:
          CallboardError: the node does not answer in time.
        """
        call = getattr(self.client(CALL_SECONDS), method)
        try:
            return retry(lambda: call(*arguments), Unreachable, seconds)
        except Unreachable as error:
            reason = f"{self.name} has not answered for {seconds:.0f} s"
            raise CallboardError(f"{reason}; check with `ray status` whether it waits for resources") from error

    def __reduce__(self) -> Any:
        # Another machine has another clock, so it looks the address up anew.
        return RayHandle, (self.name, self.actor)


class NodeHost:
    """Runs a node in a thread of this process, whose TensorFlow must not have been used yet.

    Args:
      name: name of the node.
      pickled: keyword arguments of `start`, which is then called; a Ray actor starts its node again in every restart.
      hosts: machines whose packets the node's ports accept, see `PortGuard`.
    """

    def __init__(self, name: str, pickled: bytes = b"", hosts: Sequence[str] | None = None):
        self._ports = [reserve_among(RAY_PORTS)]
        port, guard = self._ports[0].port, PortGuard(hosts)
        self.context = NodeContext(name, uuid.uuid4().hex, threading.Event(), self._send, port, guard=guard)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._error: BaseException | None = None
        self.node: Any = None
        if pickled:
            self.start(**cloudpickle.loads(pickled))

    def start(self, node_class: Callable[..., Node], rules: NodeRules, **arguments: Any) -> None:
        """Starts the node.

        Args:
          node_class: called with `context` and `arguments`.
          rules: how the process is prepared, and how long the node has to end.
          arguments: keyword arguments of the node; `RayHandle`s among them are the edges of the graph.
        """
        prepare_libraries(rules)
        self._grace = rules.grace
        self.node = node_class(context=self.context, **arguments)
        self._thread.start()

    def address(self, index: int = 0) -> str:
        """Returns the `host:port` of a port reserved for the node, as other machines reach it."""
        return f"{ray.util.get_node_ip_address()}:{self._ports[index].port}"

    def wait(self, seconds: float = 0.0) -> bool:
        """Waits until the node has ended, at most `seconds`, and returns whether it has.  Raises the node's error."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def end(self) -> None:
        """Stops the node and waits until it has ended, at most for its grace.  Raises the node's error."""
        self.context.stop.set()
        self.wait(self._grace)

    def _run(self) -> None:
        try:
            self.node.run()
        except BaseException as error:
            self._error = error

    def _send(self, kind: str, content: Any) -> None:
        if kind == "message":
            logging.warning("%s: %s", self.context.name, content)


def start_node(options: Mapping[str, Any], node_class: type[Node], name: str, **arguments: Any) -> RayHandle:
    """Starts a node in a Ray actor that has the methods which the node serves.

    Args:
      options: options of the Ray actor, such as `num_cpus`.
      node_class: see `NodeHost.start`.
      name: name of the node.
      arguments: see `NodeHost.start`.
    """

    def forward(method: str) -> Callable[..., Any]:
        return lambda host, *arguments, **named: getattr(host.node, method)(*arguments, **named)

    methods = {method: forward(method) for method in node_class.served}
    actor: Any = ray.remote(type(node_class.__name__, (NodeHost,), methods))
    # Pickled here, because Ray warns of handles among the arguments of an actor that it may restart.
    pickled = cloudpickle.dumps({"node_class": node_class, **arguments})
    return RayHandle(name, actor.options(**options).remote(name, pickled))
