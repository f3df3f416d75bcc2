"""Episodes of simulators that are elsewhere: their timesteps come as requests, and their actions go as answers."""

import contextlib
import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import NamedTuple

import numpy as np

from ....agents.policies.acting import Episode
from ....agents.policies.batched_policy import InferenceRequest, InferenceResult
from ....data import Nest, Timestep, Version
from ....errors import CallboardError
from ....runtime.deadlines import Clock
from .places import Place, PlacePool
from .request_batcher import RequestBatcher

ANSWER_SECONDS = 10.0
"""Time after which a client that has no answer is advised to repeat its request."""
_BATCH_SECONDS = 0.002
_IDLE_SECONDS = 0.02
_WAITING_SECONDS = 0.005
_LOOK_SECONDS = 0.25


class RefusedRequest(CallboardError):
    """A request that cannot be answered.

    Args:
      status: the HTTP status.
      code: what programs distinguish it by.
      message: what is wrong, and how to fix it.
    """

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status = status
        self.code = code


_CLOSED = RefusedRequest(503, "closed", "the policy server has closed")


class StepRequest(NamedTuple):
    """The message of a simulator at every timestep."""

    episode: str
    """The client's name of the episode."""
    sequence: int
    """Number of the timestep in the episode; 0 begins it."""
    observation: Nest
    """Nest of the agent's arrays `[1, ...]`; None if the episode is cut off."""
    reward: float = 0.0
    """Reward of the action before."""
    terminated: bool = False
    truncated: bool = False
    action: Nest | None = None
    """The action that the client has chosen itself, `[1, ...]`; None if the policy chooses."""

    @property
    def ends(self) -> bool:
        return self.terminated or self.truncated or self.observation is None


@dataclasses.dataclass
class _OpenEpisode:
    """An episode that has not ended."""

    name: str
    place: Place
    heard: float
    sequence: int = 0
    episode_return: float = 0.0
    chosen: Nest | None = None
    action: Nest | None = None
    """The answer to the newest timestep; None while there is none."""
    waiting: "list[Future[Nest]]" = dataclasses.field(default_factory=list)


class EpisodeServer:
    """Acts for episodes whose timesteps arrive as requests, with one forward pass for those that arrive together.

    `submit` may be called from any thread; all else happens in `serve_once`, in one thread.  An episode that no request
    reaches for `silence` seconds is cut off: its newest transition is not valid, and nothing is learned from it.

    Args:
      places: where episodes are played; there are at most as many at a time.
      infer: computes the results of requests.
      version: returns the version of the weights that act.
      silence: seconds.
      may_step: returns whether an action may be given.
      clock: the clock.
    """

    def __init__(
        self,
        places: PlacePool,
        infer: Callable[[Sequence[InferenceRequest]], Sequence[InferenceResult]],
        version: Callable[[], Version],
        silence: float,
        may_step: Callable[[], bool] = lambda: True,
        clock: Clock = time.monotonic,
    ):
        self._places = places
        self._infer = infer
        self._version = version
        self._silence = silence
        self._may_step = may_step
        self._clock = clock
        self._batcher = RequestBatcher(_BATCH_SECONDS)
        self._open: dict[str, _OpenEpisode] = {}
        self._acting: dict[int, tuple[Place, _OpenEpisode | None]] = {}
        """Places whose newest timestep has not been acted on, with the episode that waits for the action."""
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._ended_episodes: list[Episode] = []
        self._next_look = 0.0
        self._closed = False
        self.when_answered: Callable[[], object] = lambda: None
        """Called after requests have been answered, all of a batch at once, in the thread that calls `serve_once`."""
        self.environment_steps = 0
        """Actions that were executed, as far as simulators have reported it."""
        self.episodes = 0
        """Episodes that were reported to their ends."""
        self.cut_off = 0
        """Episodes that were not."""
        self.requests = 0
        """Timesteps that were acted on."""
        self.batches = 0
        """Forward passes."""

    @property
    def open_episodes(self) -> int:
        return len(self._open)

    def submit(self, request: StepRequest) -> "Future[Nest]":
        """Takes a timestep; the result is the action, a nest of arrays `[1, ...]`, or None at the end of an episode."""
        future = self._batcher.submit(hash(request.episode), request)
        if self._closed:
            _fail(future, _CLOSED)
        return future

    def serve_once(self) -> None:
        """Takes the requests that have arrived, and answers those that can be answered."""
        for pending in self._batcher.next_batch(_WAITING_SECONDS if self._acting else _IDLE_SECONDS):
            try:
                self._take(pending.request, pending.result)
            except RefusedRequest as error:
                self._batcher.forget(hash(pending.request.episode))
                _fail(pending.result, error)
        self._act()
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self._cut_off_silent(now)
        self.when_answered()

    def take_ended(self) -> list[Episode]:
        """Returns the episodes that have ended since the last call."""
        ended, self._ended_episodes = self._ended_episodes, []
        return ended

    def close(self) -> None:
        """Refuses all requests, also those that wait, and closes all places; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for episode in self._open.values():
            for waiting in episode.waiting:
                _fail(waiting, _CLOSED)
        for pending in self._batcher.next_batch(0.0):
            _fail(pending.result, _CLOSED)
        self.when_answered()
        self._places.close()

    def _take(self, request: StepRequest, result: "Future[Nest]") -> None:
        episode = self._open.get(request.episode)
        if episode is None:
            self._begin(request, result)
            return
        episode.heard = self._clock()
        if request.sequence == episode.sequence:
            # It was sent again: it is answered again, and recorded once.
            if episode.action is None:
                episode.waiting.append(result)
            else:
                _resolve(result, episode.action)
            return
        if request.sequence != episode.sequence + 1 or episode.action is None:
            raise RefusedRequest(
                409,
                "wrong_sequence",
                f"timestep {request.sequence} of episode {request.episode!r} does not follow timestep "
                f"{episode.sequence}" + ("" if episode.action is not None else ", which has no answer yet"),
            )
        if request.observation is None:
            self._end(episode, request.sequence)
            self._cut_off(episode)
            _resolve(result, None)
            return
        episode.sequence, episode.action, episode.chosen = request.sequence, None, request.action
        episode.episode_return += request.reward
        self.environment_steps += 1
        episode.place.observe(_timestep(request, first=False))
        if request.ends:
            self._end(episode, request.sequence)
            self.episodes += 1
            self._ended_episodes.append(Episode(episode.place.index, episode.episode_return, episode.sequence))
            self._acting[episode.place.index] = episode.place, None
            _resolve(result, None)
        else:
            episode.waiting.append(result)
            self._acting[episode.place.index] = episode.place, episode

    def _begin(self, request: StepRequest, result: "Future[Nest]") -> None:
        if request.episode in self._ended:
            if request.ends and request.sequence == self._ended[request.episode]:
                _resolve(result, None)
                return
            raise RefusedRequest(410, "ended", f"episode {request.episode!r} has ended: begin one with another name")
        if request.sequence != 0:
            raise RefusedRequest(
                404,
                "unknown_episode",
                f"there is no episode {request.episode!r}: it was cut off, or the server has restarted; begin another "
                "one with timestep 0",
            )
        if request.ends:
            raise RefusedRequest(400, "bad_request", "an episode cannot end with timestep 0: nothing was done in it")
        place = self._places.take()
        if place is None:
            raise RefusedRequest(503, "full", f"all {self._places.size} places for episodes are taken: try again later")
        episode = _OpenEpisode(request.episode, place, self._clock(), chosen=request.action, waiting=[result])
        self._open[request.episode] = episode
        place.observe(_timestep(request, first=True))
        self._acting[place.index] = place, episode

    def _end(self, episode: _OpenEpisode, sequence: int) -> None:
        del self._open[episode.name]
        self._batcher.forget(hash(episode.name))
        self._ended[episode.name] = sequence
        while len(self._ended) > 4 * self._places.size + 64:
            self._ended.popitem(last=False)

    def _cut_off(self, episode: _OpenEpisode) -> None:
        self.cut_off += 1
        for waiting in episode.waiting:
            _fail(waiting, RefusedRequest(410, "ended", f"episode {episode.name!r} was cut off"))
        if episode.place.index in self._acting:
            self._acting[episode.place.index] = episode.place, None
        else:
            self._places.give_back(episode.place)

    def _act(self) -> None:
        if not self._acting:
            return
        version = self._version()
        ready = []
        for place, episode in self._acting.values():
            if episode is None or self._may_step():
                if place.may_act(version):
                    ready.append((place, episode))
                elif episode is not None:
                    self._batcher.forget(hash(episode.name))
        if not ready:
            return
        results = self._infer([place.request() for place, _ in ready])
        self.batches += 1
        for (place, episode), result in zip(ready, results, strict=True):
            del self._acting[place.index]
            if episode is None:
                place.act(result, version)
                self._places.give_back(place)
                continue
            self.requests += 1
            if episode.chosen is not None:
                result = result._replace(action=episode.chosen)
            place.act(result, version)
            episode.action, waiting, episode.waiting = result.action, episode.waiting, []
            episode.heard = self._clock()
            for future in waiting:
                _resolve(future, result.action)

    def _cut_off_silent(self, now: float) -> None:
        for episode in list(self._open.values()):
            # One that waits for the server repeats its request.
            silence = self._silence + (ANSWER_SECONDS if episode.action is None else 0.0)
            if now - episode.heard > silence:
                self._end(episode, -1)
                self._cut_off(episode)


def _timestep(request: StepRequest, first: bool) -> Timestep:
    return Timestep(
        observation=request.observation,
        reward=np.array([0.0 if first else request.reward], np.float32),
        discount=np.array([0.0 if request.terminated else 1.0], np.float32),
        first=np.array([first]),
        last=np.array([request.ends]),
    )


def _resolve(future: "Future[Nest]", action: Nest) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_result(action)


def _fail(future: "Future[Nest]", error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
