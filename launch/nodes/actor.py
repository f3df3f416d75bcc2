"""The actor node: steps its environments with the newest weights and writes what it sees to replay."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ...agents.acting import Actor, CompiledPolicy, Episode, Stepper, trace_layout
from ...agents.agent import Mode
from ...agents.weights import WeightClient
from ...data import Layout
from ...environments import BatchedEnvironment, environment_seeds, evaluation_options, make
from ...replay import Heartbeat
from ..experiment import Experiment, Run
from .actor_writer import ActorWriter, act_once
from .node import NodeContext, NodeHandle, Unreachable
from .progress import MarkedEnvironment
from .reporting import Report, ReportingNode
from .step_budget import StepLease

_CALL_SECONDS = 5.0
_QUESTION_SECONDS = 1.0
_FETCH_SECONDS = 0.01
_FETCHES_A_SECOND = 1000
"""Of all who ask the learner together, so that it has time to learn."""
HOLD_SECONDS = 0.005
"""Between two looks at whether an actor that is held back may go on."""
_LEASE_SECONDS = 0.02
_LEASES_A_SECOND = 1000
"""That all actors together ask for, where they wait for steps."""


class EnvironmentNode(ReportingNode):
    """A role that steps one batch of environments, and reports what came of it."""

    def __init__(self, context: NodeContext, run: Run, index: int, coordinator: NodeHandle):
        super().__init__(context, coordinator)
        self._experiment = run.experiment
        self._layout = run.layout
        self._index = index
        self._environment: BatchedEnvironment | None = None
        self._stepper: Stepper | None = None
        self._episodes: list[tuple[float, int]] = []
        self._episodes_done = 0
        # Where roles share a thread the launcher keeps the limit.
        self._lease = None if context.cooperative else StepLease()
        self._lease_pause = min(0.5, max(_LEASE_SECONDS, run.experiment.actors / _LEASES_A_SECOND))
        self._next_request = 0.0

    @property
    def first_slot(self) -> int:
        """The global index of the first environment."""
        return self._index * self._experiment.envs_per_actor

    @property
    def environment_steps(self) -> int:
        """Actions that were executed."""
        return self._stepper.environment_steps if self._stepper else 0

    @property
    def items_written(self) -> int:
        """Items that replay has been given."""
        raise NotImplementedError

    def make_environment(self, incarnation: int) -> BatchedEnvironment:
        """Makes the environments of an incarnation of this node, which `finish` closes."""
        count = self._experiment.envs_per_actor
        self.context.progress.works_slowly("making environments")
        environment = make_environments(self._experiment, "actor", self.first_slot, count, incarnation)
        self._environment = MarkedEnvironment(environment, self.context.progress)
        return self._environment

    def may_step(self) -> bool:
        """Whether the run's limit leaves the actor another timestep, which it then must do.

        Where it does not, this waits a moment, and asks the coordinator for more now and then.
        """
        progress = self.context.progress
        if self._lease is None:
            progress.works("acting")
            return True
        if self.link.is_cut_off:
            # Without a coordinator nothing says when the run is over.
            progress.waits(f"{self.link.coordinator} to answer")
            self.context.stop.wait(HOLD_SECONDS)
            return False
        if self._lease.take(self.environment_steps):
            if self.environment_steps:
                progress.works("acting")
            else:
                progress.works_slowly("in first forward pass (compiling)")
            return True
        progress.waits("steps that are left to do")
        now = time.monotonic()
        if now >= self._next_request and not self.link.state.stopping:
            self._next_request = now + self._lease_pause
            self.link.report_now()
        self.context.stop.wait(HOLD_SECONDS)
        return False

    def renew_lease(self, limit: int) -> None:
        if self._lease is not None:
            self._lease.renew(limit)

    def tell_episodes(self, episodes: Sequence[Episode]) -> None:
        """Keeps episodes that have ended for the next report."""
        for episode in episodes:
            self._episodes.append((episode.episode_return, episode.length))
            self._episodes_done += 1

    def finish(self) -> None:
        self.link.close()
        if self._environment is not None:
            self._environment.close()

    def collect(self) -> Report:
        episodes, self._episodes = self._episodes, []
        if self._stepper is None:
            return Report()
        counts = {
            "environment_steps": self._stepper.environment_steps,
            "ignored_timesteps": self._stepper.ignored_timesteps,
            "episodes": self._episodes_done,
        }
        lease = None if self._lease is None else self._lease.request()
        return Report(counts=counts, episodes=episodes, lease=lease)


class ActorNode(EnvironmentNode):
    """Acts by itself, from the slot `index * envs_per_actor` on."""

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: NodeHandle,
        learner: NodeHandle,
        replay: Sequence[NodeHandle],
    ):
        super().__init__(context, run, index, coordinator)
        self._learner = learner
        self._replay_handle = self.replay_handle(replay)
        self._shard = run.layout.shard_of(index)
        self._shard_name = replay[self._shard].name
        self._actor: Actor | None = None
        self._writer: ActorWriter | None = None

    @property
    def items_written(self) -> int:
        return self._writer.items_written if self._writer else 0

    def setup(self) -> None:
        experiment, agent = self._experiment, self._experiment.agent
        self.context.progress.works_slowly("building networks")
        networks = agent.make_networks(self._layout)
        incarnation = self.link.incarnation()
        if incarnation is None:
            return
        environment = self.make_environment(incarnation)
        self.context.progress.works_slowly("building networks")
        policy = compile_policy(
            experiment, self._layout, networks, "train", self.first_slot, experiment.envs_per_actor, incarnation
        )
        self._layout = trace_layout(agent, self._layout, networks)
        self._weights = WeightClient(self._learner.client(_CALL_SECONDS), policy.policy.variables)
        self.begin_reports()
        if not wait_for_weights(self._weights, self._learner, self.context):
            return
        if not self.link.wait_for(self._shard_name):
            return
        self.context.progress.works_slowly("connecting to replay")
        ask = ask_for_shortage(self._learner, self.context)
        self._writer = ActorWriter(agent, self._layout, self._index, self._replay_handle, ask)
        self._actor = Actor(environment, policy, self._writer)
        self._stepper = self._actor.stepper
        logging.info("first action")
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, [self._shard])
            fetch_in_background(self._weights, self._learner, self._experiment.actors, self.context.stop)

    def step(self) -> None:
        """One timestep, once replay, the agent's pace and the run's limit allow it."""
        if self._actor is None or self._writer is None:
            return
        cooperative, stop = self.context.cooperative, self.context.stop
        if cooperative:
            self._weights.fetch()
        episodes = act_once(self._actor, self._writer, self._weights, self.may_step, self.context.progress.waits)
        if episodes is not None:
            self.tell_episodes(episodes)
            if cooperative:
                # What the others do when they take their turn would depend on the time.
                self._writer.settle(stop)
        elif not cooperative:
            stop.wait(HOLD_SECONDS)


def make_environments(
    experiment: Experiment, role: Literal["actor", "evaluator"], first_slot: int, count: int, incarnation: int = 0
) -> BatchedEnvironment:
    """The environments of one incarnation of a node, each with a seed of its own."""
    seeds = environment_seeds(experiment.seed, role, first_slot, count, incarnation)
    options = experiment.env_options
    if role == "evaluator":
        options = evaluation_options(experiment.env, options)
    return make(experiment.env, count, seeds, options)


def compile_policy(
    experiment: Experiment,
    layout: Layout,
    networks: Any,
    mode: Mode,
    first_slot: int,
    count: int,
    incarnation: int = 0,
) -> CompiledPolicy:
    """The agent's policy for the environments `first_slot` to `first_slot + count`, for one incarnation of a node."""
    policy = experiment.agent.make_policy(networks, mode)
    slots = np.arange(first_slot, first_slot + count)
    return CompiledPolicy(policy, layout, slots, experiment.seed, incarnation)


def fetch_weights(weights: WeightClient, learner: NodeHandle) -> bool:
    """Asks the learner for newer weights; False if it does not answer.

    It is being restarted then, perhaps elsewhere; until it is back, those who act go on with what they have.
    """
    try:
        weights.fetch()
    except Unreachable:
        weights.reconnect(learner.client(_CALL_SECONDS))
        return False
    return True


def fetch_in_background(weights: WeightClient, learner: NodeHandle, askers: int, stop: threading.Event) -> None:
    """Asks the learner for newer weights again and again, in a thread of its own, until `stop`.

    Args:
      weights: that are kept up to date.
      learner: that is asked.
      askers: number of nodes that ask it.
      stop: ends it.
    """
    weights.keep_fetching(lambda: fetch_weights(weights, learner), fetch_pause(askers), stop)


def fetch_pause(askers: int) -> float:
    """Seconds that each of so many nodes leaves between the learner's answer and its next question."""
    return max(_FETCH_SECONDS, askers / _FETCHES_A_SECOND)


def ask_for_shortage(learner: NodeHandle, context: NodeContext) -> Callable[[], float] | None:
    """What `ActorWriter` asks the learner by."""
    if context.cooperative:
        return None

    def ask() -> float:
        try:
            client: Any = learner.client(_QUESTION_SECONDS)
            return client.seconds_short_of_data()
        except Unreachable:
            return 0.0

    return ask


def wait_for_weights(weights: WeightClient, learner: NodeHandle, context: NodeContext) -> bool:
    """Waits for the first weights; False if the run stops before."""
    context.progress.waits(f"weights of {learner.name}")
    while not context.stop.is_set():
        if not fetch_weights(weights, learner):
            continue
        if weights.apply() or weights.version is not None:
            return True
        context.stop.wait(0.02)
    return False
