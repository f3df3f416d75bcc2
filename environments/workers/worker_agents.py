"""A parallel environment of PettingZoo in a worker process, see `worker_process`."""

import types
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from ...errors import CallboardError
from ..batches import encoding
from ..batches.spaces import observation_encoding
from .exchange import SLOTS, Exchange
from .worker_batch import described_space
from .worker_process import Refusal, WorkerProcess


class WorkerParallel:
    """An environment with several agents in a worker, with the interface of a `ParallelEnv` of PettingZoo.

    Args:
      worker: the worker, which has made the environment.
      about: its description.
    """

    def __init__(self, worker: WorkerProcess, about: Mapping[str, Any]):
        self.worker = worker
        self.possible_agents = about["agents"]
        self.agents: list[Any] = []
        self.metadata = {"render_modes": about["render_modes"], "render_fps": about["render_fps"]}
        self.render_mode = about["render_mode"]
        self.unwrapped = self
        self.spec = types.SimpleNamespace(id=about["name"])
        if about["state"] is not None:
            self.state_space = gymnasium.spaces.Box(-np.inf, np.inf, about["state"])
        self._observations, self._actions = dict(about["observation"]["parts"]), dict(about["action"]["parts"])
        if about["by_turns"]:
            self.aec_env = types.SimpleNamespace(agent_selection=None)
        self._exchange = Exchange(1, about["observation"], about["action"])
        self._exchange.map(worker.memory)
        self._slot = 0
        if about["sets_task"] == "own":
            self.set_task = lambda task: worker.request("task", task=task)

    def observation_space(self, agent: Any) -> gymnasium.Space:
        return described_space(self._observations[agent])

    def action_space(self, agent: Any) -> gymnasium.Space:
        return described_space(self._actions[agent], "action")

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return self._answer("reset", seed=seed, options=options)

    def step(self, actions: Mapping[Any, Any]) -> Any:
        for agent, action in actions.items():
            _store(self._exchange.actions[agent], action)
        return self._answer("act", acting=list(actions))

    def state(self) -> np.ndarray:
        return np.asarray(self.call("state"))

    def render(self) -> Any:
        answer, payload = self.worker.request("render")
        return np.frombuffer(payload, answer["dtype"]).reshape(answer["shape"]) if payload else None

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the environment, or gets an attribute; arguments are plain data."""
        return self.worker.request("call", name=name, arguments=arguments)[0]["results"][0]

    def close(self) -> None:
        self.worker.close()

    def _answer(self, do: str, **details: Any) -> Any:
        # The worker has written into the next arrays, also where it then refuses what it was to write.
        self._slot = (self._slot + 1) % SLOTS
        try:
            answer, _ = self.worker.request(do, **details)
        except Refusal as refusal:
            agent, given = refusal.details["agent"], refusal.details["observation"]
            try:
                encoding.encode_one(observation_encoding(self.observation_space(agent)), given)
            except CallboardError as error:
                raise CallboardError(f"agent {str(agent)!r} of {self.spec.id}: {error}") from refusal
            raise CallboardError(f"{self.spec.id} gives agent {agent!r} an observation out of its space") from refusal
        outcome, self.agents, turn = answer["outcome"]
        if hasattr(self, "aec_env"):
            self.aec_env.agent_selection = turn
        if isinstance(outcome, tuple) and isinstance(outcome[0], list):
            shown = self._exchange.observations[self._slot]
            return {agent: _first(shown[agent]) if agent in shown else None for agent in outcome[0]}, *outcome[1:]
        return outcome


def _store(array: Any, action: Any) -> None:
    if isinstance(array, dict):
        for key, part in array.items():
            _store(part, action[key])
    elif isinstance(array, tuple):
        for part, own in zip(array, action, strict=True):
            _store(part, own)
    else:
        array[0] = action


def _first(array: Any) -> Any:
    if isinstance(array, dict):
        return {key: _first(part) for key, part in array.items()}
    return tuple(map(_first, array)) if isinstance(array, tuple) else array[0]
