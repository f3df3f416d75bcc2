"""The program graph: turns an experiment into a Launchpad program."""

import dataclasses
from typing import Any

import launchpad as lp

from ..environments import ONLY_AGENT
from .experiments.checked_run import Run
from .experiments.policy_settings import Snapshots, TrainedPolicy
from .launchers.launchpad_nodes import GraphNode, SupervisingNode
from .node_rules import POLICY_SERVER_RULES, RULES, learner_rules, replay_rules
from .nodes.acting.actor import ActorNode
from .nodes.coordination.coordinator import Coordinator
from .nodes.evaluation.evaluator import EvaluatorNode
from .nodes.inference.inference import InferenceNode
from .nodes.inference.policy_server import PolicyServerNode
from .nodes.learning.learner import LearnerNode
from .nodes.node import Node
from .nodes.recorded.feeder import FeederNode
from .nodes.recorded.recorder import RecorderNode
from .nodes.replay import ReplayNode
from .nodes.user_node import ClosingProgram


class Graph:
    """The program of a run while it is made: a function for each kind of node, with what such nodes consist of.

    Args:
      run: the run.
    """

    def __init__(self, run: Run):
        self._run = run
        self._hosts = None if run.output.listen == "all" else ()
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
            timeout=self._run.output.node_timeout,
            log_level=self._run.output.log_level,
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
        kind = policy_run.agent.make_replay(policy_run.layout)
        return [
            self.add(
                "replay",
                shard,
                ReplayNode,
                policy_run,
                rules=replay_rules(policy_run.checkpoints),
                methods_address=lp.Address("windows") if kind.may_weigh_windows else None,
                shard=shard,
                coordinator=coordinator,
            )
            for shard in range(policy_run.placement.replay_shards)
        ]

    def add_learners(self, policy_run: Run, coordinator: Any, replay: list[Any]) -> Any:
        """The agent's networks and learner, the replay kind's dataset and checkpoints.  Returns the first learner.

        The first publishes the weights, and serves those of policies that do not learn.  All together make each step.
        `prepared_learner.prepare_learner` builds what they train.
        """
        peers = [lp.Address("peer") for _ in range(policy_run.placement.learners)]
        first, *_ = [
            self.add(
                "learner",
                rank,
                LearnerNode,
                policy_run,
                rules=learner_rules(policy_run.placement, rank, policy_run.policy),
                further_addresses=[peers[rank]],
                rank=rank,
                peers=peers,
                coordinator=coordinator,
                replay=replay,
                snapshots=_snapshots_of(self._run, policy_run.policy) if rank == 0 else {},
                trained=_trained_policies(self._run, policy_run.policy) if rank == 0 else {},
            )
            for rank in range(policy_run.placement.learners)
        ]
        return first

    def add_inference(self, policy_run: Run, coordinator: Any, learner: Any, replay: list[Any]) -> list[Any]:
        """With central inference, the agent's policy with the learner's weights, and a replay writer for each actor.

        `inference.prepare_inference` builds what acts.
        """
        count = policy_run.placement.inference_nodes if policy_run.placement.inference == "central" else 0
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
        for index in range(self._run.placement.replay_shards):
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
        acts_here = self._run.placement.inference == "local"
        # Learners also serve the weights of policies that do not learn.
        needs_learners = acts_here or bool(set(self._run.environment.policies) - set(learners))
        for index in range(self._run.placement.actors):
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

        `evaluator.prepare_evaluator` builds them.
        """
        self.add("evaluator", 0, EvaluatorNode, self._run, coordinator=coordinator, learners=learners)


def make_program(run: Run) -> lp.Program:
    """Makes the program graph of a run: a Launchpad program, which `lp.launch` runs, and every launcher of ours."""
    graph = Graph(run)
    coordinator = graph.add_coordinator()
    learners: dict[str, Any] = {}
    replays: dict[str, list[Any]] = {}
    inference: dict[str, list[Any]] = {}
    recorders: dict[str, Any] = {}
    for policy_run in run.policy_runs:
        name = policy_run.policy
        replays[name] = graph.add_replay(policy_run, coordinator)
        learners[name] = graph.add_learners(policy_run, coordinator, replays[name])
        if run.recording.record_episodes:
            recorders[name] = graph.add_recorder(policy_run, coordinator)
        inference[name] = graph.add_inference(policy_run, coordinator, learners[name], replays[name])
    if run.recording.dataset:
        graph.add_feeders(coordinator, learners[ONLY_AGENT], replays[ONLY_AGENT])
    if run.server.policy_server is not None:
        graph.add_policy_server(coordinator, learners[ONLY_AGENT], replays[ONLY_AGENT])
    else:
        graph.add_actors(coordinator, learners, replays, inference, recorders)
    if run.evaluation.evaluator:
        graph.add_evaluator(coordinator, learners)
    supervising, *others = graph.program.get_all_nodes()
    supervising.supervise(others)
    supervising.give(expected=[node.name for node in others])
    return graph.program


def _snapshots_of(run: Run, policy: str) -> dict[str, Snapshots]:
    """Returns the snapshots of a policy, which its learner serves."""
    policies = run.environment.policies.items()
    return {name: one for name, one in policies if isinstance(one, Snapshots) and one.snapshots_of == policy}


def _trained_policies(run: Run, policy: str) -> dict[str, TrainedPolicy]:
    """Returns the policies of other runs, all of which the learner of the first policy serves."""
    if policy != next(iter(run.policies)):
        return {}
    return {name: one for name, one in run.environment.policies.items() if isinstance(one, TrainedPolicy)}
