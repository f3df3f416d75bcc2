"""The actor node: steps its environments with the newest weights and writes what it sees to replay."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..agents.acting import Actor, CompiledPolicy, trace_layout
from ..agents.agent import Mode
from ..agents.weights import WeightClient
from ..data import Layout, Version
from ..environments import BatchedEnvironment, environment_seeds, evaluation_options, make
from ..replay import Heartbeat
from .experiment import Experiment, Run
from .link import LinkedRole, Report
from .pacing import Pacer
from .role import NodeContext, RoleHandle, Unreachable

_CALL_SECONDS = 5.0
_FETCH_SECONDS = 0.03
_READY_SECONDS = 0.5
_HOLD_SECONDS = 0.005
_QUESTION_SECONDS = 1.0


class ActorRole(LinkedRole):
    """One batch of environments, from the slot `index * envs_per_actor` on."""

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: RoleHandle,
        learner: RoleHandle,
        replay: Sequence[RoleHandle],
    ):
        super().__init__(context, coordinator)
        self._experiment = run.experiment
        self._layout = run.layout
        self._index = index
        self._learner = learner
        self._replay_handle = self.replay_handle(replay)
        self._shard = run.layout.shard_of(index)
        self._shard_name = replay[self._shard].name
        self._shard_life: object = None
        self._episodes: list[tuple[float, int]] = []
        self._episodes_done = 0
        self._actor: Actor | None = None
        self._pacer: Pacer | None = None
        self._next_question = 0.0

    @property
    def items_written(self) -> int:
        """Items that replay has been given."""
        return self._actor.writer.items_written if self._actor else 0

    @property
    def environment_steps(self) -> int:
        """Actions that were executed."""
        return self._actor.environment_steps if self._actor else 0

    def setup(self) -> None:
        experiment, agent = self._experiment, self._experiment.agent
        first_slot = self._index * experiment.envs_per_actor
        environment = make_environments(experiment, "actor", first_slot, experiment.envs_per_actor)
        self._environment = environment
        networks = agent.make_networks(self._layout)
        policy = compile_policy(experiment, self._layout, networks, "train", first_slot, experiment.envs_per_actor)
        self._layout = trace_layout(agent, self._layout, networks)
        self._weights = WeightClient(self._learner.client(_CALL_SECONDS), policy.policy.variables)
        self.begin_reports()
        if not wait_for_weights(self._weights, self._learner, self.context):
            return
        if not self.link.wait_for(self._shard_name):
            return
        self._actor = Actor(environment, policy, self._make_writer())
        logging.info("first action")
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, [self._shard])
            threading.Thread(target=self._fetch_for_ever, name="weights", daemon=True).start()

    def step(self) -> None:
        """One tick, once replay has taken what came before."""
        actor = self._actor
        if actor is None:
            return
        pacer = self._pacer
        # A sequence that is complete shall not wait in the writer for ticks that wait for the learner.
        complete = pacer is not None and pacer.between_sequences
        ready = actor.writer.ready(_READY_SECONDS, max_pending=0 if complete else None)
        if self._rewrite_if_replay_is_new(actor) or not ready:
            return
        if self.context.cooperative:
            self._weights.fetch()
        self._weights.apply()
        assert self._weights.version is not None
        actor.version = self._weights.version
        if pacer is not None and pacer.between_sequences:
            if not self._may_begin(pacer, actor.version):
                if not self.context.cooperative:
                    self.context.stop.wait(_HOLD_SECONDS)
                return
            pacer.begin()
        for episode in actor.step():
            self._episodes.append((episode.episode_return, episode.length))
            self._episodes_done += 1
        if pacer is not None and pacer.tick():
            actor.end_sequence()
        if self.context.cooperative:
            # Nothing may be on its way when the others take their turn: what they do would depend on the time.
            while not actor.writer.ready(_READY_SECONDS, max_pending=0) and not self.context.stop.is_set():
                pass

    def finish(self) -> None:
        self.link.close()
        if self._actor is not None:
            self._environment.close()

    def _may_begin(self, pacer: Pacer, version: Version) -> bool:
        if pacer.may_begin(version):
            return True
        # In one thread nobody dies or is slow, and what is done may not depend on the time.
        if self.context.cooperative or pacer.seconds_waited < pacer.patience or time.monotonic() < self._next_question:
            return False
        self._next_question = time.monotonic() + _QUESTION_SECONDS
        try:
            return self._learner.client(_QUESTION_SECONDS).seconds_short_of_data() >= pacer.patience
        except Unreachable:
            return False

    def _make_writer(self) -> Any:
        self._shard_life = self._replay_handle.life(self._shard)
        pace = self._experiment.agent.pace(self._layout)
        self._pacer = None if pace is None else Pacer(pace, self._index)
        return self._experiment.agent.make_writer(self._replay_handle, self._layout, self._index)

    def _rewrite_if_replay_is_new(self, actor: Actor) -> bool:
        # What the old writer had not got confirmed is gone with the old server; a new one begins a new sequence.
        if self._replay_handle.life(self._shard) == self._shard_life:
            return False
        actor.writer.close()
        actor.writer = self._make_writer()
        return True

    def _fetch_for_ever(self) -> None:
        while not self.context.stop.wait(_FETCH_SECONDS):
            fetch_weights(self._weights, self._learner)

    def collect(self) -> Report:
        episodes, self._episodes = self._episodes, []
        actor = self._actor
        counts = (
            {}
            if actor is None
            else {
                "environment_steps": actor.environment_steps,
                "ignored_ticks": actor.ignored_ticks,
                "episodes": self._episodes_done,
            }
        )
        return Report(counts=counts, episodes=episodes)


def make_environments(
    experiment: Experiment, role: Literal["actor", "evaluator"], first_slot: int, count: int
) -> BatchedEnvironment:
    """The environments of one node, each with a seed of its own."""
    seeds = environment_seeds(experiment.seed, role, first_slot, count)
    options = experiment.env_options
    if role == "evaluator":
        options = evaluation_options(experiment.env, options)
    return make(experiment.env, count, seeds, options)


def compile_policy(
    experiment: Experiment, layout: Layout, networks: Any, mode: Mode, first_slot: int, count: int
) -> CompiledPolicy:
    """The agent's policy for the environments `first_slot` to `first_slot + count`."""
    policy = experiment.agent.make_policy(networks, mode)
    return CompiledPolicy(policy, layout, np.arange(first_slot, first_slot + count), experiment.seed)


def fetch_weights(weights: WeightClient, learner: RoleHandle) -> bool:
    """Asks the learner for newer weights; False if it does not answer.

    It is being restarted then, perhaps elsewhere; until it is back, those who act go on with what they have.
    """
    try:
        weights.fetch()
    except Unreachable:
        weights.reconnect(learner.client(_CALL_SECONDS))
        return False
    return True


def wait_for_weights(weights: WeightClient, learner: RoleHandle, context: NodeContext) -> bool:
    """Waits for the first weights; False if the run stops before."""
    while not context.stop.is_set():
        if not fetch_weights(weights, learner):
            continue
        if weights.apply() or weights.version is not None:
            return True
        context.stop.wait(0.02)
    return False
