"""The program graph: from an experiment to a Launchpad program, and how each kind of node is to be treated."""

import dataclasses
import pathlib

import launchpad as lp

from .actor import ActorRole
from .coordinator import Coordinator
from .evaluator import EvaluatorRole
from .experiment import Experiment, Run
from .learner import LearnerRole
from .replay import ReplayRole
from .role import Role, RoleNode


@dataclasses.dataclass(frozen=True)
class NodePolicy:
    """How a launcher treats the nodes with one label.

    Attributes:
      stop_order: nodes with a low number are told to stop first, and the others once those have ended.
      grace: seconds that a node has to end after it was told to stop.
      restarts: times that a node may die within `restart_window` seconds before the run fails.
      restart_window: seconds.
      uses_gpu: whether the node sees GPUs.
      tensorflow_threads: threads of one TensorFlow operation; 0 leaves it to TensorFlow.
    """

    stop_order: int
    grace: float = 10.0
    restarts: int = 3
    restart_window: float = 60.0
    uses_gpu: bool = False
    tensorflow_threads: int = 1


POLICIES: dict[str, NodePolicy] = {
    "actor": NodePolicy(stop_order=0),
    "evaluator": NodePolicy(stop_order=0),
    "learner": NodePolicy(stop_order=1, grace=60.0, uses_gpu=True, tensorflow_threads=0),
    "replay": NodePolicy(stop_order=2, grace=600.0),  # A large replay takes minutes to write.
    "coordinator": NodePolicy(stop_order=3),
}


def make_program(run: Run) -> lp.Program:
    """The program graph of a run."""
    program = lp.Program("callboard")

    def add(label: str, number: int, role: type[Role], **arguments: object) -> object:
        with program.group(label):
            return program.add_node(RoleNode(f"{label}/{number}", role, run=run, **arguments))

    coordinator = add("coordinator", 0, Coordinator)
    replay = [
        add("replay", shard, ReplayRole, shard=shard, coordinator=coordinator)
        for shard in range(run.experiment.replay_shards)
    ]
    learner = add("learner", 0, LearnerRole, coordinator=coordinator, replay=replay)
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
