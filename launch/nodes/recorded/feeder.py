"""The feeder node: an actor without an environment, which writes recorded episodes to replay."""

import logging
from collections.abc import Sequence

import tree

from ....agents.acting import CompiledPolicy, make_record, trace_layout
from ....agents.policies.network_inputs import with_previous_action
from ....agents.weights import WeightClient
from ....data import Nest, Timestep, Version
from ....environments.recorded import EpisodeFeed
from ....replay import Heartbeat
from ...experiments.checked_run import Run
from ...experiments.recorded_sources import open_sources
from ..acting.actor_writer import ActorWriter
from ..acting.compiled_policies import compile_policy
from ..acting.environment_node import POLL_SECONDS
from ..acting.weight_fetching import CALL_SECONDS, fetch_in_background, wait_for_weights
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from ..reports.reporting import ReportingNode


class FeederNode(ReportingNode):
    """Plays recorded episodes of the run's data sets, again and again, through the agent's own writer.

    Where the agent stores something that its policy computes, such as a recurrent state or the values that priorities
    follow from, the newest policy computes it from the recorded observations.

    Args:
      context: context of the node.
      run: the run.
      index: number of the feeder, which plays every `replay_shards`-th episode into the shard of that number.
      coordinator: handle of the coordinator.
      learner: handle of the learner.
      replay: handles of the replay shards.
    """

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
        self._part = index
        # Beyond the indices of all actors, and written to the shard of the same number.
        self._index = (run.experiment.actors // len(replay) + 1) * len(replay) + index
        self._learner = learner
        self._replay_handle = self.reporter.replay_handle(replay)
        self._shard_name = replay[index].name
        self._feed: EpisodeFeed | None = None
        self._writer: ActorWriter | None = None
        self._computer: _PolicyOutputs | None = None
        self._weights: WeightClient | None = None

    @property
    def recorded_steps(self) -> int:
        """Number of recorded actions written to replay."""
        return self._feed.steps if self._feed else 0

    def items_written_for(self, policy: str) -> int:
        """Returns the number of items written to the table of what is played."""
        if self._run.experiment.agent.replay.demonstration_share:  # type: ignore[attr-defined]
            return 0
        return self._writer.items_written if self._writer else 0

    def setup(self) -> None:
        experiment, agent, layout = self._run.experiment, self._run.experiment.agent, self._run.layout
        self.context.progress.works_slowly("building networks")
        networks = agent.make_networks(layout)
        incarnation = self.reporter.incarnation()
        if incarnation is None:
            return
        self.context.progress.works_slowly("opening the data sets")
        data, shares = open_sources(experiment)
        seed = experiment.seed + incarnation
        feed = EpisodeFeed(data, shares, experiment.envs_per_actor, seed, self._part, experiment.replay_shards)
        self.context.progress.works_slowly("building networks")
        count = experiment.envs_per_actor
        policy = compile_policy(experiment, layout, networks, "train", self._index * count, count, incarnation)
        layout = trace_layout(agent, layout, networks)
        self.begin_reports()
        stored = layout.record.extras, layout.state
        if tree.flatten(stored):
            self._weights = WeightClient(self._learner.client(CALL_SECONDS), policy.policy.variables)
            if not wait_for_weights(self._weights, self._learner, self.context):
                return
        if not self.reporter.wait_for(self._shard_name):
            return
        self.context.progress.works_slowly("connecting to replay")
        self._writer = ActorWriter(
            agent,
            layout,
            self._index,
            self._replay_handle,
            self.reporter.seconds_short_of_data,
            networks,
            lambda: self.reporter.has_finished(""),
        )
        self._computer = _PolicyOutputs(policy, stored if self._weights is None else None)
        self._feed = feed
        logging.info("first recorded episodes")
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, [self._part])
            if self._weights is not None:
                fetch_in_background(self._weights, self._learner, experiment.actors + 1, self.context.stop)

    def step(self) -> None:
        """Writes one timestep of all episodes that it plays, if replay takes it."""
        feed, writer, computer = self._feed, self._writer, self._computer
        if feed is None or writer is None or computer is None:
            return
        if self.reporter.has_finished(""):
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
        writer.append(make_record(timestep, action, extras, version, feed.timestep), state)
        if self.context.cooperative:
            writer.flush(self.context.stop)

    def finish(self) -> None:
        self.reporter.close()
        if self._writer is not None:
            self._writer.close()

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
    """What the policy stores beside a recorded action: its extras, and the recurrent state before the observation.

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
