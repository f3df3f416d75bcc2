"""Acting in a Ray task: the work of the actor node, with weights and replay in Ray actors."""

import contextlib
import threading
import time
import uuid
from typing import Any

import ray

from ....agents.acting import Actor
from ....agents.weights import WeightClient
from ....replay import Heartbeat
from ...nodes.acting_setup import compile_policy, make_environments
from ...nodes.actor_writer import ActorWriter, act_once
from .part_clients import (
    CALL_SECONDS,
    REPORT_SECONDS,
    UNREACHABLE,
    Parts,
    RemoteWeights,
    Repeated,
    first_answer,
    replay_handle,
)

_FETCH_SECONDS = 0.1
_POLL_SECONDS = 0.05
_HOLD_SECONDS = 0.005


class Rollout:
    """One actor, until it is stopped.

    Args:
      parts: the servers.
      index: index of the actor.
    """

    def __init__(self, parts: Parts, index: int):
        experiment = parts.experiment
        first_slot, count = index * experiment.envs_per_actor, experiment.envs_per_actor
        networks = experiment.agent.make_networks(parts.layout)
        identity = f"{index}/{uuid.uuid4().hex}"
        incarnation = first_answer(lambda: parts.progress.begin_rollout.remote(index, identity), "Progress")
        policy = compile_policy(experiment, parts.layout, networks, "train", first_slot, count, incarnation)
        self._parts = parts
        self._index = index
        self._ended = threading.Event()
        self._policy = policy
        self._environment = make_environments(experiment, "actor", first_slot, count, incarnation)
        self._weights = WeightClient(RemoteWeights(parts.weights), policy.policy.variables)
        self._replay = replay_handle(parts.replay)
        self._actor: Actor | None = None
        self._identity = identity
        self._returns: list[float] = []
        self._short_of_data = Repeated(parts.progress.seconds_short_of_data.remote, first=0.0, every=REPORT_SECONDS)
        self._told_to_stop = Repeated(self._report, first=False, every=REPORT_SECONDS)

    def run(self, timesteps: int | None) -> int:
        """Act for `timesteps` timesteps, or until stopped if None; return the number of environment steps."""
        try:
            if not self._wait_for_weights():
                return 0
            agent, layout = self._parts.experiment.agent, self._parts.layout
            writer = ActorWriter(agent, layout, self._index, self._replay, lambda learner: self._short_of_data.newest())
            self._actor = actor = Actor(self._environment, self._policy, writer)
            Heartbeat(self._replay, self._ended, [layout.shard_of(self._index)])
            self._weights.keep_fetching(self._fetch, _FETCH_SECONDS, self._ended)
            done = 0
            while (timesteps is None or done < timesteps) and not self._told_to_stop.newest():
                episodes = act_once(actor, writer, self._weights)
                if episodes is None:
                    time.sleep(_HOLD_SECONDS)
                    continue
                self._returns += [episode.episode_return for episode in episodes]
                done += 1
            writer.close()
            with contextlib.suppress(*UNREACHABLE):
                ray.get(self._report(), timeout=CALL_SECONDS)
            return actor.environment_steps
        finally:
            self._ended.set()
            self._environment.close()

    def _wait_for_weights(self) -> bool:
        """Wait for the first weights; return False if the task is stopped first."""
        while not self._told_to_stop.newest():
            self._fetch()
            if self._weights.apply():
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _fetch(self) -> None:
        with contextlib.suppress(*UNREACHABLE):
            self._weights.fetch()

    def _report(self) -> "ray.ObjectRef[Any]":
        returns, self._returns = self._returns, []
        steps = 0 if self._actor is None else self._actor.environment_steps
        return self._parts.progress.report_rollout.remote(self._identity, steps, returns)
