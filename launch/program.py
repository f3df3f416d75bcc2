"""The program graph: turns an experiment into a Launchpad program, and defines how each kind of node is treated."""

import dataclasses
from typing import Any

import launchpad as lp

from ..errors import unknown
from ..replay import SampledReplay
from .experiment import Experiment
from .experiments.checked_run import Run
from .experiments.policy_settings import FrozenPolicy, Snapshots
from .launchers.launchpad_nodes import GraphNode, SupervisingNode
from .nodes.acting.actor import ActorNode
from .nodes.coordination.coordinator import Coordinator
from .nodes.evaluation.evaluator import EvaluatorNode
from .nodes.inference.inference import InferenceNode
from .nodes.inference.policy_server import PolicyServerNode
from .nodes.learning.learner import LearnerNode
from .nodes.node import LaunchedNode, Node, NodeHandle, NodePolicy, ProgramNode
from .nodes.recorded.feeder import FeederNode
from .nodes.recorded.recorder import RecorderNode
from .nodes.replay import ReplayNode
from .nodes.user_node import ClosingProgram, UserNode

POLICIES: dict[str, NodePolicy] = {
    "actor": NodePolicy(stop_order=1),
    "feeder": NodePolicy(stop_order=1),
    "evaluator": NodePolicy(stop_order=1),
    # Actors send it their last episodes when they end.
    "recorder": NodePolicy(stop_order=2, keeps=True, grace=60.0),
    "inference": NodePolicy(stop_order=2, uses_gpu=True, tensorflow_threads=0),
    "learner": NodePolicy(
        stop_order=3, keeps=True, restart_group="learner", grace=60.0, uses_gpu=True, tensorflow_threads=0
    ),
    # A large replay takes minutes to write.
    "replay": NodePolicy(stop_order=4, keeps=True, grace=600.0, single_arena=True),
    "coordinator": NodePolicy(stop_order=5, keeps=True),
}

POLICY_SERVER = dataclasses.replace(POLICIES["inference"], stop_order=POLICIES["actor"].stop_order)

# With several learners, the first ends before all others: its current step needs the others and their data.
FIRST_LEARNER = dataclasses.replace(POLICIES["learner"], stop_order=0)
OTHER_LEARNER = dataclasses.replace(POLICIES["learner"], stop_order=1, keeps=False)


def make_program(run: Run) -> lp.Program:
    """Makes the program graph of a run: a Launchpad program, which `lp.launch` runs, and every launcher of ours."""
    hosts = None if run.experiment.listen == "all" else ()
    program = ClosingProgram("callboard", hosts)

    def add(label: str, number: int, role: type[Node], part: Run = run, **arguments: Any) -> Any:
        with program.group(label):
            policy = dataclasses.replace(
                arguments.pop("policy", POLICIES[label]),
                timeout=run.experiment.node_timeout,
                log_level=run.experiment.log_level,
                hosts=hosts,
            )
            kind = SupervisingNode if role is Coordinator else GraphNode
            return program.add_node(kind(part.name_of(label, number), role, policy, run=part, **arguments))

    coordinator = add("coordinator", 0, Coordinator)
    learners: dict[str, Any] = {}
    recorders: dict[str, Any] = {}
    inference: dict[str, list[Any]] = {}
    replays: dict[str, list[Any]] = {}
    for part in run.parts:
        of_replay = {"policy": replay_policy(part.experiment), "coordinator": coordinator}
        kind = part.experiment.agent.make_replay(part.layout)
        weighs_windows = isinstance(kind, SampledReplay) and kind.may_weigh_windows
        replays[part.policy] = replay = [
            add(
                "replay",
                shard,
                ReplayNode,
                part,
                shard=shard,
                methods_address=lp.Address("windows") if weighs_windows else None,
                **of_replay,
            )
            for shard in range(part.experiment.replay_shards)
        ]
        peers = [lp.Address("peer") for _ in range(part.experiment.learners)]
        learner, *_ = [
            add(
                "learner",
                rank,
                LearnerNode,
                part,
                policy=learner_policy(part.experiment, rank, part.policy),
                further_addresses=[peers[rank]],
                rank=rank,
                peers=peers,
                coordinator=coordinator,
                replay=replay,
                **(_served_policies(run, part.policy) if rank == 0 else {}),
            )
            for rank in range(part.experiment.learners)
        ]
        learners[part.policy] = learner
        if run.experiment.record_episodes:
            recorders[part.policy] = add("recorder", 0, RecorderNode, part, coordinator=coordinator)
        shared = {"coordinator": coordinator, "learner": learner, "replay": replay}
        inference[part.policy] = [
            add("inference", rank, InferenceNode, part, rank=rank, **shared)
            for rank in range(part.experiment.inference_nodes if part.experiment.inference == "central" else 0)
        ]
    if run.experiment.dataset:
        for index in range(run.experiment.replay_shards):
            add("feeder", index, FeederNode, index=index, **shared)
    if run.experiment.policy_server is not None:
        add("actor", 0, PolicyServerNode, index=0, policy=POLICY_SERVER, **shared)
    else:
        acts_here = run.experiment.inference == "local"
        sources = learners if acts_here or set(run.experiment.policies) - set(learners) else {}
        for index in range(run.experiment.actors):
            add(
                "actor",
                index,
                ActorNode,
                index=index,
                coordinator=coordinator,
                learners=sources,
                replays=replays if acts_here else {},
                inference={name: nodes[index % len(nodes)] for name, nodes in inference.items() if nodes},
                recorders=recorders,
            )
    if run.experiment.evaluator:
        add("evaluator", 0, EvaluatorNode, coordinator=coordinator, learners=learners)
    supervising, *others = program.get_all_nodes()
    supervising.supervise(others)
    return program


def _served_policies(run: Run, policy: str) -> dict[str, Any]:
    """Returns the frozen policies that a policy's learner serves: its snapshots, and the first one all saved ones."""
    policies = run.experiment.policies
    own = {name: one for name, one in policies.items() if isinstance(one, Snapshots) and one.snapshots_of == policy}
    first = next(iter(run.policies)) == policy
    return {
        "snapshots": own,
        "frozen": {name: one for name, one in policies.items() if isinstance(one, FrozenPolicy) and first},
    }


def learner_policy(experiment: Experiment, rank: int = 0, trained: str = "") -> NodePolicy:
    """Returns how launchers treat a learner of an experiment, of the policy `trained` if there are several."""
    policy = POLICIES["learner"]
    if experiment.learners > 1:
        policy = OTHER_LEARNER if rank else FIRST_LEARNER
    group = f"{policy.restart_group}/{trained}" if trained else policy.restart_group
    return dataclasses.replace(policy, restart_group=group, tensorflow_threads=experiment.learner_threads)


def replay_policy(experiment: Experiment) -> NodePolicy:
    """Returns how launchers treat a replay server; one without checkpoints has nothing to save at the end."""
    return dataclasses.replace(POLICIES["replay"], keeps=experiment.checkpoint_replay)


def nodes_of(program: lp.Program) -> list[tuple[str, LaunchedNode]]:
    """Returns all nodes with their labels, in the order in which they should start.

    Nodes of Launchpad's own kinds, which a user has added, are each wrapped in a `UserNode`.

    Raises:
      CallboardError: a node is of a kind that only Launchpad itself can run.
    """
    hosts = next((node.policy.hosts for node in program.get_all_nodes() if isinstance(node, ProgramNode)), ())
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
