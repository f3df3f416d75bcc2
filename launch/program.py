"""The program graph: turns an experiment into a Launchpad program, and defines how each kind of node is treated."""

import dataclasses
from typing import Any

import launchpad as lp

from ..errors import unknown
from .experiment import Experiment, Run
from .launchers.launchpad_nodes import GraphNode, SupervisingNode
from .nodes.actor import ActorNode
from .nodes.coordinator import Coordinator
from .nodes.evaluator import EvaluatorNode
from .nodes.inference import InferenceNode
from .nodes.learner import LearnerNode
from .nodes.node import LaunchedNode, Node, NodeHandle, NodePolicy, ProgramNode
from .nodes.remote_actor import RemoteActorNode
from .nodes.replay import ReplayNode
from .nodes.user_node import UserNode

POLICIES: dict[str, NodePolicy] = {
    "actor": NodePolicy(stop_order=1),
    "evaluator": NodePolicy(stop_order=1),
    "inference": NodePolicy(stop_order=2, uses_gpu=True, tensorflow_threads=0),
    "learner": NodePolicy(
        stop_order=3, keeps=True, restart_group="learner", grace=60.0, uses_gpu=True, tensorflow_threads=0
    ),
    # A large replay takes minutes to write.
    "replay": NodePolicy(stop_order=4, keeps=True, grace=600.0, single_arena=True),
    "coordinator": NodePolicy(stop_order=5, keeps=True),
}

# With several learners, the first ends before all others: its current step needs the others and their data.
FIRST_LEARNER = dataclasses.replace(POLICIES["learner"], stop_order=0)
OTHER_LEARNER = dataclasses.replace(POLICIES["learner"], stop_order=1, keeps=False)


def make_program(run: Run) -> lp.Program:
    """Makes the program graph of a run: a Launchpad program, which `lp.launch` runs, and every launcher of ours."""
    program = lp.Program("callboard")

    def add(label: str, number: int, role: type[Node], **arguments: Any) -> Any:
        with program.group(label):
            policy = dataclasses.replace(
                arguments.pop("policy", POLICIES[label]),
                timeout=run.experiment.node_timeout,
                log_level=run.experiment.log_level,
            )
            kind = SupervisingNode if role is Coordinator else GraphNode
            return program.add_node(kind(f"{label}/{number}", role, policy, run=run, **arguments))

    coordinator = add("coordinator", 0, Coordinator)
    replay = [
        add("replay", shard, ReplayNode, policy=replay_policy(run.experiment), shard=shard, coordinator=coordinator)
        for shard in range(run.experiment.replay_shards)
    ]
    peers = [lp.Address("peer") for _ in range(run.experiment.learners)]
    learner, *_ = [
        add(
            "learner",
            rank,
            LearnerNode,
            policy=learner_policy(run.experiment, rank),
            further_addresses=[peers[rank]],
            rank=rank,
            peers=peers,
            coordinator=coordinator,
            replay=replay,
        )
        for rank in range(run.experiment.learners)
    ]
    inference = [
        add("inference", rank, InferenceNode, rank=rank, coordinator=coordinator, learner=learner, replay=replay)
        for rank in range(run.experiment.inference_nodes if run.experiment.inference == "central" else 0)
    ]
    for index in range(run.experiment.actors):
        if inference:
            node = inference[index % len(inference)]
            add("actor", index, RemoteActorNode, index=index, coordinator=coordinator, inference=node)
        else:
            add("actor", index, ActorNode, index=index, coordinator=coordinator, learner=learner, replay=replay)
    if run.experiment.evaluator:
        add("evaluator", 0, EvaluatorNode, coordinator=coordinator, learner=learner)
    supervising, *others = program.get_all_nodes()
    supervising.supervise(others)
    return program


def learner_policy(experiment: Experiment, rank: int = 0) -> NodePolicy:
    """Returns how launchers treat a learner of an experiment."""
    policy = POLICIES["learner"]
    if experiment.learners > 1:
        policy = OTHER_LEARNER if rank else FIRST_LEARNER
    return dataclasses.replace(policy, tensorflow_threads=experiment.learner_threads)


def replay_policy(experiment: Experiment) -> NodePolicy:
    """Returns how launchers treat a replay server; one without checkpoints has nothing to save at the end."""
    return dataclasses.replace(POLICIES["replay"], keeps=experiment.checkpoint_replay)


def nodes_of(program: lp.Program) -> list[tuple[str, LaunchedNode]]:
    """Returns all nodes with their labels, in the order in which they should start.

    Nodes of Launchpad's own kinds, which a user has added, are each wrapped in a `UserNode`.

    Raises:
      CallboardError: a node is of a kind that only Launchpad itself can run.
    """
    return [
        (label, node if isinstance(node, ProgramNode) else UserNode(f"{label}/{number}", node))
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
    lines = []
    labels = {
        id(handle): label
        for label, nodes in program.groups.items()
        for node in nodes
        for handle in node._created_handles
    }
    for label, nodes in program.groups.items():
        called = dict.fromkeys(labels[id(handle)] for handle in nodes[0].input_handles)
        arrow = f"  ->  {', '.join(called)}" if called else ""
        lines.append(f"{label} x {len(nodes)}{arrow}")
    return "\n".join(lines)
