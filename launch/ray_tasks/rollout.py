"""Acting in a Ray task: the actor node's work, with weights and replay from Ray actors."""

import contextlib
import threading
import time
import uuid
from typing import Any

import ray

from ...agents.acting import Actor
from ...agents.weights import WeightClient
from ...data import Version
from ...replay import Heartbeat
from ..actor import compile_policy, make_environments
from ..pacing import Pacer
from .clients import CALL_SECONDS, REPORT_SECONDS, UNREACHABLE, Parts, RemoteWeights, Repeated, replay_handle

_FETCH_SECONDS = 0.1
_READY_SECONDS = 0.5
_POLL_SECONDS = 0.05
_HOLD_SECONDS = 0.005
_QUESTION_SECONDS = 1.0


class Rollout:
    """One actor, until it is told to stop.

    Args:
      parts: the servers.
      index: of the actor.
    """

    def __init__(self, parts: Parts, index: int):
        experiment = parts.experiment
        first_slot, count = index * experiment.envs_per_actor, experiment.envs_per_actor
        networks = experiment.agent.make_networks(parts.layout)
        policy = compile_policy(experiment, parts.layout, networks, "train", first_slot, count)
        self._parts = parts
        self._index = index
        self._ended = threading.Event()
        self._policy = policy
        self._environment = make_environments(experiment, "actor", first_slot, count)
        self._weights = WeightClient(RemoteWeights(parts.weights), policy.policy.variables)
        self._replay = replay_handle(parts.replay)
        self._shard = parts.layout.shard_of(index)
        self._life: object = None
        self._pacer: Pacer | None = None
        self._actor: Actor | None = None
        self._identity = f"{index}/{uuid.uuid4().hex}"
        self._returns: list[float] = []
        self._short_of_data: Repeated[float] | None = None
        self._told_to_stop = Repeated(self._report, first=False, every=REPORT_SECONDS)

    def run(self, ticks: int | None) -> int:
        """Acts for so many ticks, or until told to stop; gives the number of environment steps."""
        try:
            if not self._wait_for_weights():
                return 0
            self._actor = actor = Actor(self._environment, self._policy, self._make_writer())
            Heartbeat(self._replay, self._ended, [self._shard])
            threading.Thread(target=self._fetch_for_ever, name="weights", daemon=True).start()
            done = 0
            while (ticks is None or done < ticks) and not self._told_to_stop.newest():
                done += self._step(actor)
            actor.writer.close()
            with contextlib.suppress(*UNREACHABLE):
                ray.get(self._report(), timeout=CALL_SECONDS)
            return actor.environment_steps
        finally:
            self._ended.set()
            self._environment.close()

    def _step(self, actor: Actor) -> bool:
        """One tick, once replay has taken what came before and the agent's pace allows it; False if not yet."""
        pacer = self._pacer
        complete = pacer is not None and pacer.between_sequences
        ready = actor.writer.ready(_READY_SECONDS, max_pending=0 if complete else None)
        if self._replay.life(self._shard) != self._life:
            # What the old writer had not got confirmed is gone with the old server.
            actor.writer.close()
            actor.writer = self._make_writer()
            return False
        if not ready:
            return False
        self._weights.apply()
        assert self._weights.version is not None
        actor.version = self._weights.version
        if pacer is not None and complete:
            if not self._may_begin(pacer, actor.version):
                time.sleep(_HOLD_SECONDS)
                return False
            pacer.begin()
            self._short_of_data = None
        self._returns += [episode.episode_return for episode in actor.step()]
        if pacer is not None and pacer.tick():
            actor.end_sequence()
        return True

    def _may_begin(self, pacer: Pacer, version: Version) -> bool:
        """Whether the agent's pace allows another sequence, or the learner waits for one that another actor owes."""
        if pacer.may_begin(version):
            return True
        if pacer.seconds_waited < pacer.patience:
            return False
        if self._short_of_data is None:
            # A new one for each sequence: an answer from before says nothing.
            question = self._parts.progress.seconds_short_of_data.remote
            self._short_of_data = Repeated(question, first=0.0, every=_QUESTION_SECONDS)
        return self._short_of_data.newest() >= pacer.patience

    def _make_writer(self) -> Any:
        agent, layout = self._parts.experiment.agent, self._parts.layout
        self._life = self._replay.life(self._shard)
        pace = agent.pace(layout)
        self._pacer = None if pace is None else Pacer(pace, self._index)
        return agent.make_writer(self._replay, layout, self._index)

    def _wait_for_weights(self) -> bool:
        """False if the task is told to stop before there are any."""
        while not self._told_to_stop.newest():
            with contextlib.suppress(*UNREACHABLE):
                self._weights.fetch()
            if self._weights.apply():
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _fetch_for_ever(self) -> None:
        while not self._ended.wait(_FETCH_SECONDS):
            with contextlib.suppress(*UNREACHABLE):
                self._weights.fetch()

    def _report(self) -> "ray.ObjectRef[Any]":
        returns, self._returns = self._returns, []
        steps = 0 if self._actor is None else self._actor.environment_steps
        return self._parts.progress.report_rollout.remote(self._identity, steps, returns)
