"""The feeder node: an actor without an environment, which writes recorded episodes to replay."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import tree

from ....agents.learning.network_inputs import with_previous_action
from ....agents.policies.acting import CompiledPolicy, make_record, trace_layout
from ....agents.variables.weights import WeightClient
from ....data import Layout, Nest, Timestep, Version
from ....environments import BatchedEnvironment, make
from ....environments.recorded import EpisodeFeed
from ....replay import Heartbeat
from ...experiments.checked_run import Run
from ...experiments.recorded_sources import open_sources
from ..acting.actor_writer import ActorWriter
from ..acting.compiled_policies import compile_policy
from ..acting.environment_node import POLL_SECONDS
from ..acting.weight_fetching import CALL_SECONDS, fetch_in_background, fetch_pause, wait_for_weights
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from ..reports.reporting import ReportingNode


class FeederNode(ReportingNode):
    """Plays recorded episodes of the run's data sets, again and again, through the agent's own writer.

    Where the agent stores something that its policy computes, such as a recurrent state or the values that priorities
    follow from, the newest policy computes it from the recorded observations.  `prepare_feeder` builds what the node
    consists of.

    Args:
      context: context of the node.
      run: the run.
      index: number of the feeder, which plays every `replay_shards`-th episode into the shard of that number.
      coordinator: handle of the coordinator.
      learner: handle of the learner.
      replay: handles of the replay shards.
    """

    achieves_by_steps = False

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: NodeHandle,
        learner: NodeHandle,
        replay: Sequence[NodeHandle],
    ):
        super().__init__(context, coordinator)
        self._run = run
        self._shard = index
        # Beyond the indices of all actors, and written to the shard of the same number.
        self._index = (run.placement.actors // len(replay) + 1) * len(replay) + index
        self._learner = learner
        self._replay_handle = self.reporter.replay_handle(replay)
        self._shard_name = replay[index].name
        self._feed: EpisodeFeed | None = None
        self._learners = self.reporter.learners_of()
        self._writer: ActorWriter | None = None
        self._computer: _PolicyOutputs | None = None
        self._weights: WeightClient | None = None
        self._environment: BatchedEnvironment | None = None

    @property
    def recorded_steps(self) -> int:
        """Number of recorded actions written to replay."""
        return self._feed.steps if self._feed else 0

    def items_written_for(self, policy: str) -> int:
        """Returns the number of items written to the table of what is played."""
        replay = self._run.agent.recorded_replay()
        if replay is not None and replay.demonstration_share:
            return 0
        return self._writer.items_written if self._writer else 0

    def setup(self) -> None:
        incarnation = self.reporter.incarnation()
        if incarnation is None:
            return
        prepared = prepare_feeder(self.context, self._run, self._shard, self._index, incarnation, self._learner)
        self._weights, self._environment = prepared.weights, prepared.environment
        self.begin_reports()
        if self._weights is not None and not wait_for_weights(self._weights, self._learner, self.context):
            return
        if not self.reporter.wait_for(self._shard_name):
            return
        self.context.progress.works_slowly("connecting to replay")
        self._writer = ActorWriter(
            self._run.agent,
            prepared.layout,
            self._index,
            self._replay_handle,
            self._learners,
            prepared.networks,
        )
        self._computer = prepared.computer
        self._feed = prepared.feed
        logging.info("first recorded episodes")
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, [self._shard])
            if self._weights is not None:
                pause = fetch_pause(self._run.placement.actors + 1)
                fetch_in_background(self._weights, self._learner, lambda: pause, self.context)

    def step(self) -> None:
        """Writes one timestep of all episodes that it plays, if replay takes it."""
        feed, writer, computer = self._feed, self._writer, self._computer
        if feed is None or writer is None or computer is None:
            return
        if self._learners.have_finished:
            self.context.progress.waits("the end of the run")
            self._pause()
            return
        if not writer.caught_up():
            self.context.progress.waits("replay to take data")
            self._pause()
            return
        version = self._newest_version()
        self.context.progress.works("playing recorded episodes")
        timestep, action = feed.timestep, feed.action()
        extras, state = computer(timestep, action)
        feed.advance()
        self.context.progress.achieves()
        writer.append(make_record(timestep, action, extras, version, feed.timestep), state)
        if self.context.cooperative:
            writer.flush(self.context.stop)

    def finish(self) -> None:
        self.reporter.close()
        if self._writer is not None:
            self._writer.close()
        if self._environment is not None:
            self._environment.close()

    def seconds_waited(self) -> dict[str, float]:
        return {} if self._writer is None else {"replay to take data": self._writer.seconds_waited}

    def collect(self) -> Report:
        return Report(counts={"recorded_steps": self.recorded_steps})

    def _newest_version(self) -> Version:
        if self._weights is None:
            return Version(0, 0)
        if self.context.cooperative:
            self._weights.fetch()
        self._weights.apply()
        assert self._weights.version is not None
        return self._weights.version

    def _pause(self) -> None:
        if not self.context.cooperative:
            self.context.stop.wait(POLL_SECONDS)


class _PolicyOutputs:
    """Values that a policy stores beside a recorded action: its extras, and the recurrent state before it.

    Args:
      policy: the policy.
      nothing: its extras and its state, if they hold no arrays; None if they do.
    """

    def __init__(self, policy: CompiledPolicy, nothing: tuple[Nest, Nest] | None):
        self._policy = policy
        self._nothing = nothing

    def __call__(self, timestep: Timestep, action: Nest) -> tuple[Nest, Nest]:
        """Returns extras and state for the next timestep, to which the recorded action follows."""
        if self._nothing is not None:
            return self._nothing
        state = self._policy.state
        extras = self._policy(timestep)[1]
        # The policy has chosen another action.
        self._policy.state = with_previous_action(self._policy.state, action)
        return extras, state


class PreparedFeeder(NamedTuple):
    """Parts of a feeder node."""

    feed: EpisodeFeed
    """The recorded episodes that it plays."""
    networks: Any
    """The agent's networks, which its writer may need."""
    computer: _PolicyOutputs
    """Completes recorded steps to records."""
    layout: Layout
    """The layout of the run, with the record that replay contains."""
    weights: WeightClient | None
    """Fetches the weights of those networks; None if nothing that they compute is stored."""
    environment: BatchedEnvironment | None
    """Computes rewards for other goals, of as many episodes; None where the agent has no other goals."""


def prepare_feeder(
    context: NodeContext, run: Run, shard: int, index: int, incarnation: int, learner: NodeHandle
) -> PreparedFeeder:
    """Builds what a feeder consists of; weights and the writer to replay follow.

    Args:
      context: context of the node.
      run: the run.
      shard: index of the replay shard that it writes to.
      index: index of the feeder, after those of all actors.
      incarnation: number of earlier incarnations of the feeder.
      learner: handle of the learner.
    """
    agent, count = run.agent, run.placement.envs_per_actor
    context.progress.works_slowly("opening the data sets")
    data, shares = open_sources(run.recording)
    feed = EpisodeFeed(data, shares, count, run.placement.seed + incarnation, shard, run.placement.replay_shards)
    context.progress.works_slowly("building networks")
    networks = agent.make_networks(run.layout)
    policy = compile_policy(run.acting, run.layout, networks, "train", index * count, count, incarnation)
    layout = trace_layout(agent, run.layout, networks)
    stored = layout.record.extras, layout.state
    weights = WeightClient(learner.client(CALL_SECONDS), policy.policy.variables) if tree.flatten(stored) else None
    computer = _PolicyOutputs(policy, stored if weights is None else None)
    environment = None
    if agent.relabels_goals():
        environment = make(run.environment.env, count, [0] * count, run.environment.options_of_env)
        layout = layout._replace(goal_rewards=environment.goal_rewards)
    return PreparedFeeder(feed, networks, computer, layout, weights, environment)
