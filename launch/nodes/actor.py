"""The actor node: steps its environments with the newest weights and writes the records to replay."""

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
"""Upper bound on weight requests per second over all actors, so that the learner has time to learn."""
HOLD_SECONDS = 0.005
"""Interval at which an actor that is held back checks whether it may continue."""
_LEASE_SECONDS = 0.02
_LEASES_A_SECOND = 1000
"""Upper bound on lease requests per second over all actors that wait for steps."""


class EnvironmentNode(ReportingNode):
    """A node that steps one batch of environments and reports the results."""

    def __init__(self, context: NodeContext, run: Run, index: int, coordinator: NodeHandle):
        super().__init__(context, coordinator)
        self._experiment = run.experiment
        self._layout = run.layout
        self._index = index
        self._environment: BatchedEnvironment | None = None
        self._stepper: Stepper | None = None
        self._episodes: list[tuple[float, int]] = []
        self._episodes_done = 0
        # With one thread for all nodes the launcher enforces the step limit.
        self._lease = None if context.cooperative else StepLease()
        self._lease_pause = min(0.5, max(_LEASE_SECONDS, run.experiment.actors / _LEASES_A_SECOND))
        self._next_request = 0.0

    @property
    def first_slot(self) -> int:
        """The slot (global index) of the first environment."""
        return self._index * self._experiment.envs_per_actor

    @property
    def environment_steps(self) -> int:
        """Number of executed actions."""
        return self._stepper.environment_steps if self._stepper else 0

    @property
    def items_written(self) -> int:
        """Number of items written to replay."""
        raise NotImplementedError

    def make_environment(self, incarnation: int) -> BatchedEnvironment:
        """Makes the environments of an incarnation of this node; `finish` closes them."""
        count = self._experiment.envs_per_actor
        self.context.progress.works_slowly("making environments")
        environment = make_environments(self._experiment, "actor", self.first_slot, count, incarnation)
        self._environment = MarkedEnvironment(environment, self.context.progress)
        return self._environment

    def may_step(self) -> bool:
        """Returns whether the run's step limit allows another timestep, which the actor must then take.

        If not, waits a moment, and from time to time requests more steps from the coordinator.
        """
        progress = self.context.progress
        if self._lease is None:
            progress.works("acting")
            return True
        if self.link.is_cut_off:
            # Without a coordinator the actor cannot find out that the run has ended.
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
        """Keeps finished episodes for the next report."""
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
    """An actor that computes its actions itself, for the slots from `index * envs_per_actor` on."""

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
        """Takes one timestep if replay, the agent's pacing and the run's step limit allow it."""
        if self._actor is None or self._writer is None:
            return
        cooperative, stop = self.context.cooperative, self.context.stop
        if cooperative:
            self._weights.fetch()
        episodes = act_once(self._actor, self._writer, self._weights, self.may_step, self.context.progress.waits)
        if episodes is not None:
            self.tell_episodes(episodes)
            if cooperative:
                # Otherwise what the other nodes do in their turns would depend on timing.
                self._writer.settle(stop)
        elif not cooperative:
            stop.wait(HOLD_SECONDS)


def make_environments(
    experiment: Experiment, role: Literal["actor", "evaluator"], first_slot: int, count: int, incarnation: int = 0
) -> BatchedEnvironment:
    """Makes the environments of one incarnation of a node, each with its own seed."""
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
    """Compiles the agent's policy for slots `first_slot` to `first_slot + count`, for one incarnation of a node."""
    policy = experiment.agent.make_policy(networks, mode)
    slots = np.arange(first_slot, first_slot + count)
    return CompiledPolicy(policy, layout, slots, experiment.seed, incarnation)


def fetch_weights(weights: WeightClient, learner: NodeHandle) -> bool:
    """Fetches newer weights from the learner; returns False if it does not answer.

    In that case the learner is being restarted, perhaps on another host.  Until it is back, actors continue with the
    weights they have.
    """
    try:
        weights.fetch()
    except Unreachable:
        weights.reconnect(learner.client(_CALL_SECONDS))
        return False
    return True


def fetch_in_background(weights: WeightClient, learner: NodeHandle, askers: int, stop: threading.Event) -> None:
    """Keeps fetching newer weights from the learner in a background thread.

    Args:
      weights: the weights to keep up to date.
      learner: handle of the learner.
      askers: number of nodes that fetch from this learner.
      stop: ends the thread when set.
    """
    weights.keep_fetching(lambda: fetch_weights(weights, learner), fetch_pause(askers), stop)


def fetch_pause(askers: int) -> float:
    """Returns the seconds each of `askers` nodes waits between the learner's answer and its next request."""
    return max(_FETCH_SECONDS, askers / _FETCHES_A_SECOND)


def ask_for_shortage(learner: NodeHandle, context: NodeContext) -> Callable[[], float] | None:
    """Returns the function through which `ActorWriter` queries how long the learner has been short of data."""
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
    """Waits for the first weights; returns False if the run stops first."""
    context.progress.waits(f"weights of {learner.name}")
    while not context.stop.is_set():
        if not fetch_weights(weights, learner):
            continue
        if weights.apply() or weights.version is not None:
            return True
        context.stop.wait(0.02)
    return False
