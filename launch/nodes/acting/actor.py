"""The actor node: steps its environments with the newest weights and writes the records to replay."""

import logging
from collections.abc import Mapping, Sequence

from ....agents.acting import Actor, trace_layout
from ....agents.agent import Policy
from ....agents.weights import WeightClient
from ....replay import Heartbeat
from ...experiments.checked_run import Run
from ..node import NodeContext, NodeHandle
from .acting_setup import compile_policy
from .actor_writer import ActorWriter, act_once
from .environment_node import POLL_SECONDS, EnvironmentNode
from .weight_fetching import CALL_SECONDS, fetch_in_background, wait_for_weights


class ActorNode(EnvironmentNode):
    """An actor that computes its actions itself, for the slots from `index * envs_per_actor` on."""

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: NodeHandle,
        learner: NodeHandle,
        replay: Sequence[NodeHandle],
        recorder: NodeHandle | None = None,
    ):
        super().__init__(context, run, index, coordinator, recorder)
        self._learner = learner
        self._replay_handle = self.replay_handle(replay)
        self._shard = run.layout.shard_of(index)
        self._shard_name = replay[self._shard].name
        self._actor: Actor | None = None
        self._policy: Policy | None = None
        self._writer: ActorWriter | None = None

    @property
    def items_written(self) -> int:
        return self._writer.items_written if self._writer else 0

    def setup(self) -> None:
        experiment, agent = self._experiment, self._experiment.agent
        self.context.progress.works_slowly("building networks")
        networks = agent.make_networks(self._layout)
        incarnation = self.reporter.incarnation()
        if incarnation is None:
            return
        environment = self.make_environment(incarnation)
        self.context.progress.works_slowly("building networks")
        policy = compile_policy(
            experiment, self._layout, networks, "train", self.first_slot, experiment.envs_per_actor, incarnation
        )
        self._layout = trace_layout(agent, self._layout, networks)
        self._weights = WeightClient(self._learner.client(CALL_SECONDS), policy.policy.variables)
        self.begin_reports()
        if not wait_for_weights(self._weights, self._learner, self.context):
            return
        if not self.reporter.wait_for(self._shard_name):
            return
        self.context.progress.works_slowly("connecting to replay")
        self._writer = ActorWriter(
            agent, self._layout, self._index, self._replay_handle, self.seconds_short_of_data, networks
        )
        self.take_task()
        self._actor = Actor(environment, policy, self._writer)
        self._policy, self._stepper = policy.policy, self._actor.stepper
        logging.info("first action")
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, [self._shard])
            fetch_in_background(self._weights, self._learner, self._experiment.actors, self.context.stop)

    def seconds_waited(self) -> dict[str, float]:
        return {} if self._writer is None else {"replay to take data": self._writer.seconds_waited}

    def weights_step(self) -> int | None:
        return None if self._actor is None or self._weights.version is None else self._weights.version.step

    def policies_here(self) -> Mapping[str, Policy]:
        return {} if self._policy is None else {"": self._policy}

    def step(self) -> None:
        """Takes one timestep if replay, the agent's pacing and the run's step limit allow it."""
        if self._actor is None or self._writer is None:
            return
        cooperative, stop = self.context.cooperative, self.context.stop
        if cooperative:
            self._weights.fetch()
        episodes = act_once(self._actor, self._writer, self._weights, self.may_step, self.context.progress.waits)
        if episodes is not None:
            self.add_episodes(episodes)
            if cooperative:
                # Otherwise what the other nodes do in their turns would depend on timing.
                self._writer.flush(stop)
        elif not cooperative:
            stop.wait(POLL_SECONDS)

    def finish(self) -> None:
        super().finish()
        if self._writer is not None:
            self._writer.close()
