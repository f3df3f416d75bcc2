"""The program graph: from an experiment to a Launchpad program, and how each kind of node is to be treated."""

import dataclasses
import pathlib
from typing import Any

import launchpad as lp

from .actor import ActorRole
from .coordinator import Coordinator
from .evaluator import EvaluatorRole
from .experiment import Experiment, Run
from .learner import LearnerRole
from .replay import ReplayRole
from .role import NodePolicy, Role, RoleNode

POLICIES: dict[str, NodePolicy] = {
    "actor": NodePolicy(stop_order=0),
    "evaluator": NodePolicy(stop_order=0),
    "learner": NodePolicy(stop_order=1, restart_group="learner", grace=60.0, uses_gpu=True, tensorflow_threads=0),
    "replay": NodePolicy(stop_order=2, grace=600.0),  # A large replay takes minutes to write.
    "coordinator": NodePolicy(stop_order=3),
}

# Until the first learner has ended it may be in a step that needs the others, so they are told to stop after it.
FOLLOWER = dataclasses.replace(POLICIES["learner"], stop_order=2)


def make_program(run: Run) -> lp.Program:
    """The program graph of a run."""
    program = lp.Program("callboard")

    def add(label: str, number: int, role: type[Role], **arguments: Any) -> Any:
        with program.group(label):
            settings = {"policy": POLICIES[label], "run": run, **arguments}
            return program.add_node(RoleNode(f"{label}/{number}", role, **settings))

    coordinator = add("coordinator", 0, Coordinator)
    replay = [
        add("replay", shard, ReplayRole, shard=shard, coordinator=coordinator)
        for shard in range(run.experiment.replay_shards)
    ]
    peers = [lp.Address("peer") for _ in range(run.experiment.learners)]
    learner, *_ = [
        add(
            "learner",
            rank,
            LearnerRole,
            policy=FOLLOWER if rank else POLICIES["learner"],
            further_addresses=[peers[rank]],
            rank=rank,
            peers=peers,
            coordinator=coordinator,
            replay=replay,
        )
        for rank in range(run.experiment.learners)
    ]
    for index in range(run.experiment.actors):
        add("actor", index, ActorRole, index=index, coordinator=coordinator, learner=learner, replay=replay)
    if run.experiment.evaluator:
        add("evaluator", 0, EvaluatorRole, coordinator=coordinator, learner=learner)
    return program


def nodes_of(program: lp.Program) -> list[tuple[str, RoleNode]]:
    """All nodes with their labels, in the order in which they should start."""
    return [(label, node) for label, nodes in program.groups.items() for node in nodes]


def describe_graph(program: lp.Program) -> str:
    """The graph as text: each kind of node, how many there are, and whom they call."""
    lines = []
    for label, nodes in program.groups.items():
        called = dict.fromkeys(handle.name.partition("/")[0] for handle in nodes[0].input_handles)
        arrow = f"  ->  {', '.join(called)}" if called else ""
        lines.append(f"{label} x {len(nodes)}{arrow}")
    return "\n".join(lines)


def default_run_directory(experiment: Experiment, agent_name: str, now: str) -> pathlib.Path:
    """`runs/<agent>-<environment>-<time>`, for runs that name none."""
    words = f"{agent_name}-{experiment.env}-{now}"
    return pathlib.Path("runs") / "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in words)
