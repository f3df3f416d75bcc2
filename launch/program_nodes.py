"""The nodes of a program: in the order in which they start, by name, and as text."""

from typing import Any

import launchpad as lp

from ..errors import unknown
from .nodes.node import LaunchedNode, NodeHandle, ProgramNode
from .nodes.user_node import UserNode


def nodes_of(program: lp.Program) -> list[tuple[str, LaunchedNode]]:
    """Returns all nodes with their labels, in the order in which they should start.

    Nodes of Launchpad's own kinds, which a user has added, are each wrapped in a `UserNode`.

    Raises:
      CallboardError: a node is of a kind that only Launchpad itself can run.
    """
    hosts = next((node.rules.hosts for node in program.get_all_nodes() if isinstance(node, ProgramNode)), ())
    return [
        (label, node if isinstance(node, ProgramNode) else UserNode(f"{label}/{number}", node, hosts))
        for label, nodes in program.groups.items()
        for number, node in enumerate(nodes)
    ]


def handle_of(program: lp.Program, name: str) -> NodeHandle:
    """Returns a handle of a node such as `learner/0`, for the arguments of a node of the user's own.

    Raises:
      CallboardError: the program has no such node.
    """
    nodes = {node.name: node for node in program.get_all_nodes() if isinstance(node, ProgramNode)}
    if name not in nodes:
        raise unknown("node", name, nodes)
    return nodes[name].create_handle()


def describe_graph(program: lp.Program) -> str:
    """Describes the graph as text: each kind of node, their number, and the nodes they call."""
    kinds = {
        id(handle): kind
        for kind, nodes in kinds_of(program).items()
        for node in nodes
        for handle in node._created_handles
    }
    lines = []
    for kind, nodes in kinds_of(program).items():
        called = dict.fromkeys(kinds[id(handle)] for handle in nodes[0].input_handles)
        arrow = f"  ->  {', '.join(called)}" if called else ""
        lines.append(f"{kind} x {len(nodes)}{arrow}")
    return "\n".join(lines)


def kinds_of(program: lp.Program) -> dict[str, list[Any]]:
    """Returns the nodes that differ only in their number, by the rest of their names: `actor`, `learner/red`."""
    kinds: dict[str, list[Any]] = {}
    for label, nodes in program.groups.items():
        for node in nodes:
            kind = node.name.rpartition("/")[0] if isinstance(node, ProgramNode) else label
            kinds.setdefault(kind, []).append(node)
    return kinds
