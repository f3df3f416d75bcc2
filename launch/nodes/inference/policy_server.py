"""The node that acts for simulators which connect from outside: central inference whose requests come over HTTP."""

import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....agents.policies.acting import policy_seed
from ....agents.policies.batched_policy import InferenceRequest, InferenceResult
from ....data import Layout, Version
from ....replay import Pace
from ...experiments.checked_run import Run
from ...serving.access_token import make_token, read_token
from ...serving.server_address import parse_address, tls_context
from ...serving.wire_format import WireFormat
from ..acting.environment_node import POLL_SECONDS
from ..acting.pacing import Pacer
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from ..reports.step_budget import StepLease
from .episode_server import EpisodeServer
from .inference import InferenceNode
from .places import PlacePool, RecordedPlace

if TYPE_CHECKING:
    from .http_door import HttpDoor

_PATIENCE_SECONDS = 1.0


class SharedPace:
    """Limits how far the places of a policy server run ahead of the learner together.

    `Pacer` gives each actor the same share.  Simulators come and go: those that are there may use the shares of all
    places.  A sequence counts from its beginning until a learner step consumes it, but not while its place rests in the
    middle of it.

    Args:
      pace: the agent's pacing.
      places: number of places.
      clock: returns the time in seconds; monotonic.
    """

    def __init__(self, pace: Pace, places: int, clock: Callable[[], float] = time.monotonic):
        self._items_per_step = pace.items_per_actor * places
        self._limit = self._items_per_step * (pace.max_policy_lag + 1)
        self._clock = clock
        self._begun: set[int] = set()
        """Places in the middle of a sequence."""
        self._written = 0
        """Sequences that are complete and have not been consumed."""
        self._version: Version | None = None
        self._helped = clock()

    def may_begin(self, version: Version) -> bool:
        """Returns whether weights of this version are new enough to begin another sequence in any place."""
        if self._version is None or version.incarnation != self._version.incarnation:
            # A restarted learner needs new data, regardless of what the previous incarnation received.
            self._written = 0
        else:
            consumed = self._items_per_step * (version.step - self._version.step)
            self._written = max(0, self._written - consumed)
        self._version = version
        return self._written + len(self._begun) < self._limit

    def may_help(self, short_of_data: float) -> bool:
        """Returns whether to begin an extra one, for a learner that waits for the sequences of slow simulators."""
        now = self._clock()
        if min(short_of_data, now - self._helped) < _PATIENCE_SECONDS:
            return False
        self._helped = now
        return True

    def begin(self, place: int) -> None:
        self._begun.add(place)

    def end(self, place: int) -> None:
        """Counts a sequence that is complete."""
        self._begun.discard(place)
        self._written += 1
        self._helped = self._clock()

    def rest(self, place: int) -> None:
        self._begun.discard(place)


class PlacePacer(Pacer):
    """The pacer of one place.

    Args:
      pace: the agent's pacing.
      index: index of the place.
      shared: the pacing of all places.
    """

    def __init__(self, pace: Pace, index: int, shared: SharedPace):
        super().__init__(pace, index)
        self._shared = shared

    def may_begin(self, version: Version) -> bool:
        return self._shared.may_begin(version)

    def may_help(self, short_of_data: float) -> bool:
        return self._shared.may_help(short_of_data)

    def begin(self) -> None:
        super().begin()
        self._shared.begin(self._index)

    def count_timestep(self) -> bool:
        is_complete = super().count_timestep()
        if is_complete:
            self._shared.end(self._index)
        else:
            self._shared.begin(self._index)
        return is_complete

    def rest(self) -> None:
        self._shared.rest(self._index)


class PolicyServerNode(InferenceNode):
    """Stands for all actors of a run: each of its places is an actor with one environment, which is a simulator."""

    served: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: NodeHandle,
        learner: NodeHandle,
        replay: Sequence[NodeHandle],
    ):
        super().__init__(context, run, index, coordinator, learner, replay)
        self._run = run
        self._incarnation = 0
        self._lease = StepLease()
        self._door: HttpDoor | None = None
        self._episodes: EpisodeServer | None = None

    def setup(self) -> None:
        incarnation = self.reporter.incarnation()
        if incarnation is None:
            return
        self._incarnation = incarnation
        self.context.progress.works_slowly("building networks")
        super().setup()
        if not self._set_up.is_set():
            return
        replay = self._run.agent.make_replay(self._layout)
        shared = None if replay.pace is None else SharedPace(replay.pace, self._run.placement.actors)
        self._episodes = EpisodeServer(
            # Where exploration depends on the place, simulators take turns in all of them.
            PlacePool(functools.partial(self._make_place_of, shared), self._run.placement.actors, not replay.is_queue),
            self._infer_places,
            self._newest_version,
            self._run.server.policy_server_silence,
            may_step=self._may_step,
        )
        self._door = prepare_door(self._run, self._layout, self._episodes, self._health)
        self._door.start()
        self._announce()

    def step(self) -> None:
        """Answers the requests that have arrived."""
        if self._episodes is None:
            self.context.stop.wait(POLL_SECONDS)
            return
        self.context.progress.works("serving")
        self._weights.apply()
        self._episodes.serve_once()

    def finish(self) -> None:
        self.release()
        super().finish()

    def release(self) -> None:
        # What waits is refused first, so that no connection waits for an answer.
        if self._episodes is not None:
            self._episodes.close()
        if self._door is not None:
            self._door.close()

    def renew_lease(self, limit: int) -> None:
        self._lease.renew(limit)

    def seconds_waited(self) -> dict[str, float]:
        return {}

    def collect(self) -> Report:
        episodes = self._episodes
        if episodes is None:
            return Report()
        counts = {"environment_steps": episodes.environment_steps, "episodes": episodes.episodes}
        values = {
            "policy_server/open_episodes": float(episodes.open_episodes),
            "policy_server/cut_off_episodes": float(episodes.cut_off),
        }
        if episodes.batches:
            values["policy_server/requests_per_batch"] = episodes.requests / episodes.batches
        ended = [(episode.episode_return, episode.length) for episode in episodes.take_ended()]
        return Report(counts=counts, values=values, episodes=ended, lease=self._lease.request())

    def _may_step(self) -> bool:
        assert self._episodes is not None
        return self._lease.acquire(self._episodes.environment_steps)

    def _make_place_of(self, shared: SharedPace | None, index: int) -> RecordedPlace:
        make_pacer = Pacer if shared is None else functools.partial(PlacePacer, shared=shared)
        seed = policy_seed(self._run.placement.seed, index, self._incarnation)
        return self._make_place(index, seed, 1, make_pacer)

    def _infer_places(self, requests: Sequence[InferenceRequest]) -> list[InferenceResult]:
        # Each new batch size is compiled.
        self.context.progress.works_slowly("in forward pass")
        results = self._policy(requests)
        self.context.progress.achieves()
        return results

    def _newest_version(self) -> Version:
        assert self._weights.version is not None
        return self._weights.version

    def _announce(self) -> None:
        """Says on the screen where simulators connect: when the run begins, is resumed, or the node is restarted."""
        assert self._run.server.policy_server is not None
        address, given = parse_address(self._run.server.policy_server), self._run.server.policy_server_token_file
        encrypted = self._run.server.policy_server_certificate is not None
        url = address.url(encrypted)
        token = read_token(token_path(self._run))
        shown = f"token {token}" if given is None else f"its token is in {given}"
        self.context.notify(f"policy server at {url}, {self._run.placement.actors} places; {shown}")
        if not address.is_loopback and not encrypted:
            self.context.notify(
                "the policy server sends its token and all data unencrypted over the network: set "
                "policy_server_certificate, or listen at 127.0.0.1"
            )

    def _health(self) -> dict[str, Any]:
        return {"learner_step": self.weights_step()}


def prepare_door(run: Run, layout: Layout, episodes: EpisodeServer, health: Callable[[], dict[str, Any]]) -> "HttpDoor":
    """Builds the HTTP server of a run: its address, token and certificate, and which actions it accepts.

    Args:
      run: the run.
      layout: the layout of the run.
      episodes: the episodes that simulators play.
      health: returns what the health address adds.
    """
    # aiohttp, which it needs, is installed where there are policy servers.
    from .http_door import HttpDoor

    assert run.server.policy_server is not None
    address = parse_address(run.server.policy_server)
    tls = tls_context(run.server.policy_server_certificate, run.server.policy_server_key)
    path = token_path(run)
    token = make_token(path) if run.server.policy_server_token_file is None else read_token(path)
    refusal = ""
    if run.agent.make_replay(layout).is_queue:
        refusal = "this agent learns from its own actions only: leave action out, or train one that has a replay"
    elif layout.state != ():
        refusal = "this agent's memory contains its own actions: leave action out, or train one without memory"
    wire = WireFormat(layout.spec)
    return HttpDoor(episodes, wire, address, token, tls, run.placement.actors, refusal, health)


def token_path(run: Run) -> pathlib.Path:
    """Returns the file that holds the token: the user's, or one in the run directory."""
    given = run.server.policy_server_token_file
    return run.directory.path / "policy_server_token" if given is None else pathlib.Path(given)
