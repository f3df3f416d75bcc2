"""A client of Callboard's policy server: one file for any Python from 3.9 on, without Callboard or other packages.

Copy it next to your simulator.

    client = PolicyClient("http://127.0.0.1:8650", token)
    episode = client.begin(observation)
    while True:
        observation, reward, terminated, truncated = simulate(episode.action)
        if terminated or truncated:
            episode.end(reward, observation, terminated)
            break
        episode.step(reward, observation)

Several agents of one simulator that share the policy have an `AgentsEpisode`, see `PolicyClient.begin_agents`.

Observations are numbers, lists, NumPy arrays, or dictionaries and tuples of them, as in the server's spaces.  Where
NumPy is installed, arrays travel as bytes and actions are arrays; otherwise they are lists.  If the connection fails,
the client repeats the request until `patience` seconds have passed; the server records a repeated one once.
"""

# Annotations that Python 3.9 cannot evaluate are never evaluated.
from __future__ import annotations

import http.client
import json
import ssl
import struct
import time
import urllib.parse
import uuid
from typing import Any

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

_RETRY_SECONDS = 0.2
_MOST_TIMEOUT = 1e6


class ServerError(Exception):
    """The server has refused a request.

    Args:
      status: the HTTP status.
      code: what programs distinguish it by, such as `bad_request`, `unauthorized` or `full`.
      message: what is wrong, and how to fix it.
    """

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.code, *self.args)


class EpisodeLost(ServerError):
    """The server does not know the episode any more: it was silent for too long, or the server was restarted.

    Begin another one.
    """


class ServerUnreachable(ConnectionError):
    """The server has not answered for `patience` seconds."""


class PolicyClient:
    """Talks to a policy server over one connection; each thread and each process needs a client of its own.

    Args:
      url: address of the server, such as `http://127.0.0.1:8650`.
      token: the token that the server has shown; whitespace around it, as from a file, is ignored.
      ca_file: PEM file of the certificate that has signed the server's, for `https`; None for the system's.
      patience: seconds for which a request is repeated while the server does not answer; one that answers that its
        learner is not ready is waited for without a limit.
      timeout: seconds to wait for the answer to one request.
    """

    def __init__(
        self, url: str, token: str, ca_file: str | None = None, patience: float = 120.0, timeout: float = 30.0
    ):
        try:
            parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
            port = parts.port
        except ValueError:
            port = 0
        if port == 0 or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a policy server: write http://HOST:PORT")
        if not isinstance(token, str) or not isinstance(ca_file, (str, type(None))):
            raise ValueError("token and ca_file are texts: the token that the server has shown, and a path")
        token = token.strip()
        if not token.isascii() or not token.isprintable():
            raise ValueError("the token has other letters than the server's: give the one that the server has shown")
        for name, seconds in (("patience", patience), ("timeout", timeout)):
            if not isinstance(seconds, (int, float)) or not seconds >= 0:
                raise ValueError(f"{name} must be a number of seconds, not {seconds!r}")
        if not 0 < timeout <= _MOST_TIMEOUT:
            raise ValueError(f"timeout must be above 0, and at most {_MOST_TIMEOUT:g} seconds, not {timeout!r}")
        self._host, self._port = parts.hostname, port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._token = token
        self._patience = patience
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None
        self._action_space: Any = None

    def begin(self, observation: Any, action: Any = None) -> Episode:
        """Begins an episode with its first observation.

        Args:
          observation: as in the server's spaces.
          action: the first action if you choose it yourself, for agents that learn from others' actions; None if the
            policy chooses.
        """
        episode = Episode(self)
        episode._send({"observation": observation, "action": action})
        return episode

    def begin_agents(self, observations: dict[str, Any]) -> AgentsEpisode:
        """Begins an episode of several agents, which share the policy, with their first observations by agent."""
        episode = AgentsEpisode(self)
        episode.step({}, observations)
        return episode

    def spaces(self) -> dict[str, Any]:
        """Returns the spaces of observations and actions."""
        return self._request("GET", "/v1/spaces")

    def health(self) -> dict[str, Any]:
        """Returns how the server does."""
        return self._request("GET", "/v1/health")

    def play(self, environment: Any, episodes: int = 1) -> list[float]:
        """Plays episodes in an environment with Gymnasium's `reset` and `step`; returns their returns.

        An episode that the server has lost is played again.
        """
        returns: list[float] = []
        while len(returns) < episodes:
            try:
                observation, _ = environment.reset()
                episode, total, ended = self.begin(observation), 0.0, False
                while not ended:
                    observation, reward, terminated, truncated, _ = environment.step(episode.action)
                    total, ended = total + float(reward), bool(terminated or truncated)
                    if ended:
                        episode.end(reward, observation, terminated)
                    else:
                        episode.step(reward, observation)
            except EpisodeLost:
                continue
            returns.append(total)
        return returns

    def play_agents(self, environment: Any, episodes: int = 1) -> list[dict[str, float]]:
        """Plays episodes in an environment with PettingZoo's parallel API; returns the return of each agent.

        An episode that the server has lost is played again.
        """
        returns: list[dict[str, float]] = []
        while len(returns) < episodes:
            try:
                observations, _ = environment.reset()
                episode = self.begin_agents(observations)
                total = {agent: 0.0 for agent in observations}
                while episode.actions:
                    observations, rewards, terminated, truncated, _ = environment.step(episode.actions)
                    for agent, reward in rewards.items():
                        total[agent] = total.get(agent, 0.0) + float(reward)
                    ended = {
                        agent: bool(terminated[agent]) for agent in terminated if terminated[agent] or truncated[agent]
                    }
                    episode.step(rewards, observations, ended)
            except EpisodeLost:
                continue
            returns.append(total)
        return returns

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _action(self, value: Any) -> Any:
        if self._action_space is None:
            self._action_space = self.spaces()["action"]
        return _action(self._action_space, value)

    def _request(self, method: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if content is None else _packed(content)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/octet-stream"}
        begun = time.monotonic()
        while True:
            try:
                status, answer = self._send(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise
                if time.monotonic() - begun > self._patience:
                    raise ServerUnreachable(f"{self._host}:{self._port} does not answer: {error}") from error
                time.sleep(_RETRY_SECONDS)
                continue
            if status == 200:
                return answer
            code, message = str(answer.get("code", "")), str(answer.get("error", ""))
            if code == "wait":
                # The server has waited itself, for a learner that compiles or is paused.
                begun = time.monotonic()
                continue
            if (code == "closed" or status == 429) and time.monotonic() - begun <= self._patience:
                time.sleep(_RETRY_SECONDS)
                continue
            kind = EpisodeLost if code in ("unknown_episode", "ended") else ServerError
            raise kind(status, code, message)

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        connection = self._connection
        if connection is None:
            if self._tls is None:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
            else:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout, context=self._tls
                )
            self._connection = connection
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        try:
            answer = json.loads(content)
        except ValueError as error:
            raise http.client.HTTPException(f"status {response.status}, which is not JSON") from error
        return response.status, answer if isinstance(answer, dict) else {}


class Episode:
    """An episode that `PolicyClient.begin` has begun."""

    def __init__(self, client: PolicyClient):
        self._client = client
        self._sequence = -1
        """Number of the newest timestep that the server has answered."""
        self.name = uuid.uuid4().hex
        """The server's name of the episode."""
        self.action: Any = None
        """The action that follows the newest observation: the policy's, or that which you have chosen."""

    def step(self, reward: float, observation: Any, action: Any = None) -> Any:
        """Reports the reward of the last action and what was observed then; returns the next action."""
        self._send({"reward": float(reward), "observation": observation, "action": action})
        return self.action

    def end(self, reward: float, observation: Any, terminated: bool) -> None:
        """Reports the end of the episode.

        Args:
          reward: the reward of the last action.
          observation: the last observation.
          terminated: whether the task itself ended; False at a time limit, or another end that is not part of the task.
        """
        flag = "terminated" if terminated else "truncated"
        self._send({"reward": float(reward), "observation": observation, flag: True})

    def cut_off(self) -> None:
        """Ends the episode where the simulator cannot continue it, so that its place is free at once."""
        self._send({"cut_off": True})

    def _send(self, content: dict[str, Any]) -> None:
        if content.get("action") is None:
            content.pop("action", None)
        self._take(self._client._request("POST", "/v1/step", self._timestep(content)))

    def _timestep(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"episode": self.name, "sequence": self._sequence + 1, **content}

    def _take(self, answer: dict[str, Any]) -> None:
        self._sequence += 1
        self.action = self._client._action(answer["action"]) if "action" in answer else None


class AgentsEpisode:
    """An episode of several agents that `PolicyClient.begin_agents` has begun.

    To the server each agent has an episode of its own, from its first observation to its end; the timesteps of all of
    them travel in one request.  Agents may come later and go earlier than others.
    """

    def __init__(self, client: PolicyClient):
        self._client = client
        self._open: dict[str, Episode] = {}
        self.actions: dict[str, Any] = {}
        """The action of each agent that acts next; empty once all have ended."""

    def step(
        self,
        rewards: dict[str, float],
        observations: dict[str, Any],
        ended: dict[str, bool] | None = None,
        actions: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Reports what followed the last actions; returns the next ones by agent.

        Args:
          rewards: the reward of each agent's last action; 0 where it is missing.
          observations: what each agent observes now, the last observation of those that end among them.  An agent that
            was not there begins.
          ended: the agents whose episodes end, and whether each has terminated; False at a time limit.
          actions: actions that you have chosen yourself, for agents that learn from others' actions.

        Raises:
          EpisodeLost: the server has lost the episode of an agent; those of the others are cut off.
        """
        ended, chosen = ended or {}, actions or {}
        for agent in ended:
            if agent in self._open and agent not in observations:
                raise ValueError(f"agent {agent!r} ends without an observation: give its last one")
        sent: list[tuple[str, Episode, dict[str, Any]]] = []
        for agent, observation in observations.items():
            content: dict[str, Any] = {"observation": observation}
            episode = self._open.get(agent)
            if episode is None:
                if agent in ended:
                    continue
                episode = Episode(self._client)
            else:
                content["reward"] = float(rewards.get(agent, 0.0))
            if agent in ended:
                content["terminated" if ended[agent] else "truncated"] = True
            elif agent in chosen:
                content["action"] = chosen[agent]
            sent.append((agent, episode, episode._timestep(content)))
        self._send(sent)
        for agent in ended:
            self._open.pop(agent, None)
        self.actions = {agent: episode.action for agent, episode in self._open.items() if agent in observations}
        return self.actions

    def end(self, rewards: dict[str, float], observations: dict[str, Any], terminated: bool) -> None:
        """Reports the end of the episodes of all agents; arguments as in `step`."""
        self.step(rewards, observations, {agent: terminated for agent in self._open})

    def cut_off(self) -> None:
        """Ends the episodes of all agents where the simulator cannot continue them."""
        for episode in self._open.values():
            episode.cut_off()
        self._open, self.actions = {}, {}

    def _send(self, sent: list[tuple[str, Episode, dict[str, Any]]]) -> None:
        """Sends timesteps until each has its answer."""
        while sent:
            part, rest = sent[:_MOST_TOGETHER], sent[_MOST_TOGETHER:]
            answers = self._client._request("POST", "/v1/steps", {"steps": [one for _, _, one in part]})["answers"]
            again: list[tuple[str, Episode, dict[str, Any]]] = []
            refused: tuple[str, dict[str, Any]] | None = None
            for (agent, episode, timestep), answer in zip(part, answers):  # noqa: B905 (not in Python 3.9)
                code = answer.get("code")
                if code is None:
                    episode._take(answer)
                    self._open[agent] = episode
                elif code in ("wait", "closed"):
                    again.append((agent, episode, timestep))
                else:
                    refused = agent, answer
            if refused is not None:
                agent, answer = refused
                self._give_up(agent)
                kind = EpisodeLost if answer["code"] in ("unknown_episode", "ended") else ServerError
                raise kind(answer["status"], answer["code"], f"{agent}: {answer['error']}")
            sent = again + rest

    def _give_up(self, lost: str) -> None:
        """Cuts off the episodes of the other agents, as far as the server knows them."""
        self._open.pop(lost, None)
        for episode in self._open.values():
            try:
                episode.cut_off()
            except ServerError:
                pass
        self._open, self.actions = {}, {}


def _packed(content: dict[str, Any]) -> bytes:
    """Returns the body of a request: the length of the JSON, the JSON, and the bytes of its arrays."""
    arrays: list[bytes] = []
    text = json.dumps(_plain(content, arrays)).encode()
    return b"".join([struct.pack("<I", len(text)), text, *arrays])


def _plain(value: Any, arrays: list[bytes]) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part, arrays) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, arrays) for part in value]
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if value.size < _FEW_NUMBERS or value.dtype == object:
            return value.tolist()
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        offset = sum(map(len, arrays))
        arrays.append(little.tobytes())
        return {"raw": offset, "dtype": value.dtype.name, "shape": list(value.shape)}
    return value


_MOST_TOGETHER = 16
"""Timesteps in a request; the server takes no more."""
_FEW_NUMBERS = 16
"""Arrays with fewer numbers are as short in JSON."""


def _action(space: Any, value: Any) -> Any:
    """Returns an action as the environment takes it: numbers, or arrays if NumPy is installed."""
    if "dict" in space:
        return {key: _action(part, value[str(key)]) for key, part in space["dict"]}
    if "tuple" in space:
        return tuple(_action(part, inner) for part, inner in zip(space["tuple"], value))  # noqa: B905 (not in Python 3.9)
    if numpy is None or not space["shape"]:
        return value
    return numpy.array(value, space.get("environment_dtype", space["dtype"]))
