"""The program graph: turns an experiment into a Launchpad program, and defines how each kind of node is treated."""

import dataclasses
from typing import Any

import launchpad as lp

from ..environments import ONLY_AGENT
from ..errors import unknown
from .experiment import Experiment
from .experiments.checked_run import Run
from .experiments.policy_settings import Snapshots, TrainedPolicy
from .launchers.launchpad_nodes import GraphNode, SupervisingNode
from .nodes.acting.actor import ActorNode
from .nodes.coordination.coordinator import Coordinator
from .nodes.evaluation.evaluator import EvaluatorNode
from .nodes.inference.inference import InferenceNode
from .nodes.inference.policy_server import PolicyServerNode
from .nodes.learning.learner import LearnerNode
from .nodes.node import LaunchedNode, Node, NodeHandle, NodeRules, ProgramNode
from .nodes.recorded.feeder import FeederNode
from .nodes.recorded.recorder import RecorderNode
from .nodes.replay import ReplayNode
from .nodes.user_node import ClosingProgram, UserNode

RULES: dict[str, NodeRules] = {
    "actor": NodeRules(stop_order=1),
    "feeder": NodeRules(stop_order=1),
    "evaluator": NodeRules(stop_order=1),
    # Actors send it their last episodes when they end.
    "recorder": NodeRules(stop_order=2, keeps=True, grace=60.0),
    "inference": NodeRules(stop_order=2, uses_gpu=True, tensorflow_threads=0),
    "learner": NodeRules(
        stop_order=3, keeps=True, restart_group="learner", grace=60.0, uses_gpu=True, tensorflow_threads=0
    ),
    # A large replay takes minutes to write.
    "replay": NodeRules(stop_order=4, keeps=True, grace=600.0, single_arena=True),
    "coordinator": NodeRules(stop_order=5, keeps=True),
}

POLICY_SERVER_RULES = dataclasses.replace(RULES["inference"], stop_order=RULES["actor"].stop_order)

# With several learners, the first ends before all others: its current step needs the others and their data.
FIRST_LEARNER_RULES = dataclasses.replace(RULES["learner"], stop_order=0)
OTHER_LEARNER_RULES = dataclasses.replace(RULES["learner"], stop_order=1, keeps=False)


class Graph:
    """The program of a run while it is made: a function for each kind of node, with what such nodes consist of.

    Args:
      run: the run.
    """

    def __init__(self, run: Run):
        self._run = run
        self._experiment = run.experiment
        self._hosts = None if run.experiment.listen == "all" else ()
        self.program = ClosingProgram("callboard", self._hosts)

    def add(self, label: str, number: int, role: type[Node], policy_run: Run, **arguments: Any) -> Any:
        """Adds a node, which will be made as `role(context=..., run=policy_run, **arguments)`; returns its handle.

        Args:
          label: kind of the node.
          number: its number among those of its kind and policy.
          role: class of the node.
          policy_run: the run, or that of one policy, see `Run.of_policy`.
          **arguments: those of the class; `rules` are its `NodeRules`, by default those of its kind.
        """
        rules = dataclasses.replace(
            arguments.pop("rules", RULES[label]),
            timeout=self._experiment.node_timeout,
            log_level=self._experiment.log_level,
            hosts=self._hosts,
        )
        kind = SupervisingNode if role is Coordinator else GraphNode
        with self.program.group(label):
            return self.program.add_node(
                kind(policy_run.name_of(label, number), role, rules, run=policy_run, **arguments)
            )

    def add_coordinator(self) -> Any:
        """Counters, metrics and their loggers, stopping rules, and the control of the run; calls no other node."""
        return self.add("coordinator", 0, Coordinator, self._run)

    def add_replay(self, policy_run: Run, coordinator: Any) -> list[Any]:
        """A Reverb server for each shard, with the tables of the agent's replay kind, and checkpoints of them.

        `replay.prepare_replay` builds that kind of replay.
        """
        kind = policy_run.experiment.agent.make_replay(policy_run.layout)
        return [
            self.add(
                "replay",
                shard,
                ReplayNode,
                policy_run,
                rules=replay_rules(policy_run.experiment),
                methods_address=lp.Address("windows") if kind.may_weigh_windows else None,
                shard=shard,
                coordinator=coordinator,
            )
            for shard in range(policy_run.experiment.replay_shards)
        ]

    def add_learners(self, policy_run: Run, coordinator: Any, replay: list[Any]) -> Any:
        """The agent's networks and learner, the replay kind's dataset and checkpoints.  Returns the first learner.

        The first publishes the weights, and serves those of policies that do not learn.  All together make each step.
        `prepared_learner.prepare_learner` builds what they train.
        """
        peers = [lp.Address("peer") for _ in range(policy_run.experiment.learners)]
        first, *_ = [
            self.add(
                "learner",
                rank,
                LearnerNode,
                policy_run,
                rules=learner_rules(policy_run.experiment, rank, policy_run.policy),
                further_addresses=[peers[rank]],
                rank=rank,
                peers=peers,
                coordinator=coordinator,
                replay=replay,
                snapshots=_snapshots_of(self._run, policy_run.policy) if rank == 0 else {},
                trained=_trained_policies(self._run, policy_run.policy) if rank == 0 else {},
            )
            for rank in range(policy_run.experiment.learners)
        ]
        return first

    def add_inference(self, policy_run: Run, coordinator: Any, learner: Any, replay: list[Any]) -> list[Any]:
        """With central inference, the agent's policy with the learner's weights, and a replay writer for each actor.

        `inference.prepare_inference` builds what acts.
        """
        count = policy_run.experiment.inference_nodes if policy_run.experiment.inference == "central" else 0
        shared = {"coordinator": coordinator, "learner": learner, "replay": replay}
        return [self.add("inference", rank, InferenceNode, policy_run, rank=rank, **shared) for rank in range(count)]

    def add_recorder(self, policy_run: Run, coordinator: Any) -> Any:
        """The data set to which actors send the episodes of a policy; `recorder.prepare_recorder` opens it."""
        return self.add("recorder", 0, RecorderNode, policy_run, coordinator=coordinator)

    def add_feeders(self, coordinator: Any, learner: Any, replay: list[Any]) -> None:
        """Recorded episodes, a policy that completes them to records, and a replay writer, for each shard.

        `feeder.prepare_feeder` builds them.
        """
        shared = {"coordinator": coordinator, "learner": learner, "replay": replay}
        for index in range(self._experiment.replay_shards):
            self.add("feeder", index, FeederNode, self._run, index=index, **shared)

    def add_actors(
        self,
        coordinator: Any,
        learners: dict[str, Any],
        replays: dict[str, list[Any]],
        inference: dict[str, list[Any]],
        recorders: dict[str, Any],
    ) -> None:
        """A batch of environments, and for each policy its weights and a replay writer, or a client of inference.

        `prepared_actor.prepare_actor` builds them.
        """
        acts_here = self._experiment.inference == "local"
        # Learners also serve the weights of policies that do not learn.
        needs_learners = acts_here or bool(set(self._experiment.policies) - set(learners))
        for index in range(self._experiment.actors):
            self.add(
                "actor",
                index,
                ActorNode,
                self._run,
                index=index,
                coordinator=coordinator,
                learners=learners if needs_learners else {},
                replays=replays if acts_here else {},
                inference={name: nodes[index % len(nodes)] for name, nodes in inference.items() if nodes},
                recorders=recorders,
            )

    def add_policy_server(self, coordinator: Any, learner: Any, replay: list[Any]) -> None:
        """In place of the actors: an HTTP server, the agent's policy, and a replay writer for each simulator.

        `inference.prepare_inference` builds what acts, and `policy_server.prepare_door` the server.
        """
        shared = {"coordinator": coordinator, "learner": learner, "replay": replay}
        self.add("actor", 0, PolicyServerNode, self._run, index=0, rules=POLICY_SERVER_RULES, **shared)

    def add_evaluator(self, coordinator: Any, learners: dict[str, Any]) -> None:
        """Environments of evaluations, all policies with the learners' weights, and the best of them so far.

        `prepared_evaluator.prepare_evaluator` builds them.
        """
        self.add("evaluator", 0, EvaluatorNode, self._run, coordinator=coordinator, learners=learners)


def make_program(run: Run) -> lp.Program:
    """Makes the program graph of a run: a Launchpad program, which `lp.launch` runs, and every launcher of ours."""
    graph, experiment = Graph(run), run.experiment
    coordinator = graph.add_coordinator()
    learners: dict[str, Any] = {}
    replays: dict[str, list[Any]] = {}
    inference: dict[str, list[Any]] = {}
    recorders: dict[str, Any] = {}
    for policy_run in run.policy_runs:
        name = policy_run.policy
        replays[name] = graph.add_replay(policy_run, coordinator)
        learners[name] = graph.add_learners(policy_run, coordinator, replays[name])
        if experiment.record_episodes:
            recorders[name] = graph.add_recorder(policy_run, coordinator)
        inference[name] = graph.add_inference(policy_run, coordinator, learners[name], replays[name])
    if experiment.dataset:
        graph.add_feeders(coordinator, learners[ONLY_AGENT], replays[ONLY_AGENT])
    if experiment.policy_server is not None:
        graph.add_policy_server(coordinator, learners[ONLY_AGENT], replays[ONLY_AGENT])
    else:
        graph.add_actors(coordinator, learners, replays, inference, recorders)
    if experiment.evaluator:
        graph.add_evaluator(coordinator, learners)
    supervising, *others = graph.program.get_all_nodes()
    supervising.supervise(others)
    supervising.give(expected=[node.name for node in others])
    return graph.program


def _snapshots_of(run: Run, policy: str) -> dict[str, Snapshots]:
    """Returns the snapshots of a policy, which its learner serves."""
    policies = run.experiment.policies.items()
    return {name: one for name, one in policies if isinstance(one, Snapshots) and one.snapshots_of == policy}


def _trained_policies(run: Run, policy: str) -> dict[str, TrainedPolicy]:
    """Returns the policies of other runs, all of which the learner of the first policy serves."""
    if policy != next(iter(run.policies)):
        return {}
    return {name: one for name, one in run.experiment.policies.items() if isinstance(one, TrainedPolicy)}


def learner_rules(experiment: Experiment, rank: int = 0, trained: str = "") -> NodeRules:
    """Returns how launchers treat a learner of an experiment, of the policy `trained` if there are several."""
    rules = RULES["learner"]
    if experiment.learners > 1:
        rules = OTHER_LEARNER_RULES if rank else FIRST_LEARNER_RULES
    group = f"{rules.restart_group}/{trained}" if trained else rules.restart_group
    return dataclasses.replace(rules, restart_group=group, tensorflow_threads=experiment.learner_threads)


def replay_rules(experiment: Experiment) -> NodeRules:
    """Returns how launchers treat a replay server; one without checkpoints has nothing to save at the end."""
    return dataclasses.replace(RULES["replay"], keeps=experiment.checkpoint_replay)


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
