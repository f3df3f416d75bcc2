"""The actor node: steps its environments, in which the policies of the run act, and has records of it written."""

import logging
from collections.abc import Mapping, Sequence

from ....agents.agent import Policy
from ....agents.policies.acting import BatchPolicy, Stepper
from ....environments.batches.infos import Infos
from ....environments.multi_agent.policy_view import PolicyView
from ....environments.recorded import EpisodeRecorder
from ...experiments.checked_run import Run
from ...node_names import metric_of
from ..episodes.joint_episodes import JointEpisode
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from .environment_node import POLL_SECONDS, EnvironmentNode
from .fixed_policies import fetch_trained_agents
from .opponents import Opponents
from .policy_actors import PolicyActor
from .prepared_actor import ActorHandles, prepare_actor


class ActorNode(EnvironmentNode):
    """An actor for the environments from `index * envs_per_actor` on.

    `policy_actors` act for the policies that learn: with central inference each through its inference node, and
    otherwise here, as all others do.  `prepare_actor` builds what the node consists of.

    Args:
      context: context of the node.
      run: the run.
      index: index of the actor.
      coordinator: handle of the coordinator.
      learners: handles of the learners, by policy; of policies that act elsewhere only where some do not learn, whose
        weights learners serve.
      replays: handles of the replay shards of the policies that act here, by policy.
      inference: handles of the inference nodes that act for policies, by policy.
      recorders: handles of the nodes that record episodes, by policy.
    """

    achieves_by_steps = False

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: NodeHandle,
        learners: Mapping[str, NodeHandle],
        replays: Mapping[str, Sequence[NodeHandle]],
        inference: Mapping[str, NodeHandle],
        recorders: Mapping[str, NodeHandle],
    ):
        super().__init__(context, run, index, coordinator)
        self._handles = ActorHandles(learners, replays, inference, recorders)
        self._recorders: dict[str, EpisodeRecorder] = {}
        self._actors: dict[str, PolicyActor] = {}
        self._fixed: dict[str, BatchPolicy] = {}
        self._opponents: Opponents | None = None
        self._view: PolicyView | None = None
        self._joint_episodes: list[JointEpisode] = []
        self._agent_steps: dict[str, int] = {}

    @property
    def items_written(self) -> int:
        return sum(actor.items_written for actor in self._actors.values())

    def items_written_for(self, policy: str) -> int:
        return self._actors[policy].items_written

    def setup(self) -> None:
        context, reporter = self.context, self.reporter
        context.progress.works_slowly("building networks")
        incarnation = reporter.incarnation()
        if incarnation is None:
            return
        trained = fetch_trained_agents(self._run.plan(), self._handles.learners.values(), context)
        if trained is None:
            return
        prepared = prepare_actor(context, reporter, self._run, self._index, incarnation, trained, self._handles)
        self.take_environments(prepared.environments)
        self._fixed, self._opponents, self._recorders = prepared.fixed, prepared.opponents, prepared.recorders
        self._view = prepared.environments.view
        self.begin_reports()
        actors = prepared.actors.values()
        if not all(actor.wait_for_weights() for actor in actors) or not self._opponents.wait():
            return
        shard = self._layout.shard_of(self._index)
        shards = [shards_of_policy[shard].name for shards_of_policy in self._handles.replays.values()]
        if not reporter.wait_for(*(node.name for node in self._handles.inference.values()), *shards):
            return
        context.progress.works_slowly("connecting to replay")
        for actor in actors:
            actor.connect()
        self.take_task()
        stepper = Stepper(prepared.environments.batch)
        self._begin(stepper, prepared.actors)
        self._actors, self._stepper = prepared.actors, stepper
        logging.info("first action")
        if not context.cooperative:
            self._opponents.fetch_in_background()

    def step(self) -> None:
        """Takes one timestep if all policies can act and the run's step limit allows it."""
        stepper, view, opponents = self._stepper, self._view, self._opponents
        if stepper is None or view is None or opponents is None:
            return
        timesteps = view.split(stepper.timestep)
        for name, actor in self._actors.items():
            if not actor.ready(timesteps[name], self.context.progress.waits):
                if actor.lost:
                    # Its inference node was restarted and has lost the state before the newest observations.
                    stepper.begin()
                    self._begin(stepper, self._actors)
                elif not self.context.cooperative:
                    self.context.stop.wait(POLL_SECONDS)
                return
        if not self.may_step():
            for actor in self._actors.values():
                actor.send_remaining()
            return
        if self._fixed:
            if self.context.cooperative:
                opponents.fetch()
            opponents.apply(view.in_use)
        actions = {name: actor.act(timesteps[name]) for name, actor in self._actors.items()}
        for name, policy in self._fixed.items():
            if view.in_use(name):
                actions[name] = policy(timesteps[name])[0]
        players = {name: opponents.player(name) for name in self._fixed}
        episodes = stepper.step(view.join(actions))
        following = view.split(stepper.timestep)
        for name, actor in self._actors.items():
            actor.record(following[name])
        self.context.progress.achieved = self.environment_steps
        infos = self._infos(view)
        for name, recorder in self._recorders.items():
            recorder.step(actions[name], following[name], infos.get(name))
        for name, count in view.executed_by.items():
            self._agent_steps[name] = self._agent_steps.get(name, 0) + count
        self.add_episodes(episodes)
        for ended in view.take_episodes():
            by_agent = {agent: players.get(policy, policy) for agent, policy in ended.policies.items()}
            self._joint_episodes.append(JointEpisode(ended.length, ended.returns, by_agent, ended.task))

    def finish(self) -> None:
        super().finish()
        for recorder in self._recorders.values():
            recorder.close()
        for actor in self._actors.values():
            actor.close()

    def seconds_waited(self) -> dict[str, float]:
        waited = [actor.seconds_waited for actor in self._actors.values()]
        here = [seconds for seconds in waited if seconds is not None]
        return {"replay to take data": sum(here)} if here else {}

    def policies_here(self) -> Mapping[str, Policy]:
        policies = {name: actor.policy for name, actor in self._actors.items()}
        return {name: policy for name, policy in policies.items() if policy is not None}

    def weights_step(self) -> int | None:
        steps = [actor.weights_step for actor in self._actors.values()]
        return steps[0] if len(steps) == 1 else None

    def collect(self) -> Report:
        ended, self._joint_episodes = self._joint_episodes, []
        report = super().collect()
        steps = {metric_of(name, "agent_steps"): count for name, count in self._agent_steps.items()}
        return report._replace(counts={**report.counts, **steps}, joint_episodes=ended)

    def _begin(self, stepper: Stepper, actors: Mapping[str, PolicyActor]) -> None:
        assert self._view is not None
        timesteps = self._view.split(stepper.timestep)
        for name, actor in actors.items():
            actor.begin(timesteps[name])
        infos = self._infos(self._view)
        for name, recorder in self._recorders.items():
            recorder.begin(timesteps[name], infos.get(name))

    def _infos(self, view: PolicyView) -> Mapping[str, Infos]:
        """Returns the infos of the newest timestep by policy, if they are recorded."""
        if self._environment is None or not self._run.recording.record_infos:
            return {}
        return view.infos_of(self._environment)
