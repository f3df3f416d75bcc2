"""The policy of a run, served over HTTP: it acts for many clients at once, and takes newer weights as they appear."""

import logging
import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from ...agents.policies.acting import policy_seed
from ...agents.policies.batched_policy import BatchedPolicy
from ...data import Version
from ...errors import CallboardError, one_line
from ..experiments.settings import read_experiment
from ..nodes.inference.episode_server import EpisodeServer
from ..nodes.inference.places import Place, PlacePool
from ..run_directory.found_runs import RunReference
from ..run_directory.layout import RunDirectory
from ..run_directory.policy_weights import load_weights
from ..run_directory.remote_storage import is_url, local_copy
from ..saved.saved_policies import policy_file, restored_policy, saved_spec
from ..serving.wire_format import WireFormat
from .evaluation import with_evaluation_settings

RELOAD_SECONDS = 2.0
"""Interval at which the run directory is looked at for newer weights."""

_logger = logging.getLogger(__name__)


class ServedPolicy:
    """A policy of a run that acts for episodes, as in the run's evaluations.

    With `best`, `latest` or unnamed weights of a directory on this machine, newer ones are loaded when the run writes
    them; a file that cannot be read leaves the weights as they are.

    Args:
      reference: the run, and which of its weights are meant.
      places: the most episodes at a time.
      silence: seconds without a request after which an episode is forgotten.
      mode, epsilon, seed: as in `load_policy`.
      trust: likewise.
      notify: takes a line for the user.

    Raises:
      CallboardError: as in `load_policy`.
    """

    def __init__(
        self,
        reference: RunReference,
        places: int,
        silence: float,
        mode: Literal["greedy", "sampled"] | None = None,
        epsilon: float | None = None,
        seed: int | None = None,
        trust: bool = False,
        notify: Callable[[str], object] = _logger.info,
    ):
        experiment = with_evaluation_settings(read_experiment(reference.run, trust=trust), mode, epsilon, seed)
        self._seed = experiment.seed
        self._reference = reference
        self._notify = notify
        with local_copy(reference.run, reference.checkpoint) as directory:
            spec = saved_spec(directory)
            if spec is None:
                raise CallboardError(f"the run in {reference.run} has not saved its spaces: resume it")
            layout = experiment.acting_layout(spec)
            file = policy_file(directory, reference.checkpoint)
            self._seen = _marks(directory)
            self._weights = restored_policy(experiment, layout, file)
            self.loaded = str(file.relative_to(directory.path))
            """The file of the weights, in the run directory."""
        acting_spec = experiment.agent.acting_spec(spec)
        self._policy = BatchedPolicy(self._weights, layout._replace(spec=acting_spec))
        self.wire = WireFormat(acting_spec)
        self._reloads = not is_url(reference.run) and reference.checkpoint in ("", "best", "latest")
        self._next_look = time.monotonic() + RELOAD_SECONDS
        self._version = Version(0, 0)
        self._problem = ""
        self.episodes = EpisodeServer(PlacePool(self._make_place, places), self._policy, lambda: self._version, silence)

    def serve(self, stop: threading.Event) -> None:
        """Answers requests until `stop` is set."""
        while not stop.is_set():
            self.episodes.serve_once()
            if self._reloads and time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + RELOAD_SECONDS
                self.reload()

    def reload(self) -> None:
        """Loads the weights that the reference now names, if they have changed."""
        directory = RunDirectory(pathlib.Path(self._reference.run))
        try:
            marks = _marks(directory)
            if marks == self._seen:
                return
            file = policy_file(directory, self._reference.checkpoint)
            load_weights(file, self._weights.variables)
        except (OSError, CallboardError) as error:
            # The run may be replacing its files.  A problem that stays is logged once.
            before, self._problem = self._problem, one_line(error)
            if self._problem != before:
                _logger.warning("the newest weights cannot be loaded: %s", self._problem)
            return
        self._seen, self._problem = marks, ""
        self._version = Version(0, self._version.step + 1)
        self.loaded = str(file.relative_to(directory.path))
        self._notify(f"serves newer weights: {self.loaded}")

    def health(self) -> dict[str, Any]:
        """Returns what is served, for `/v1/health`."""
        return {"policy": self.loaded, "reloads": self._version.step, "open_episodes": self.episodes.open_episodes}

    def _make_place(self, index: int) -> Place:
        return Place(index, self._policy.initial_state(1), policy_seed(self._seed, index))


def _marks(directory: RunDirectory) -> list[tuple[str, int, int]]:
    """Returns a value that changes when a run writes weights."""
    marks = []
    with os.scandir(directory.checkpoints) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            marks.append((entry.name, status.st_mtime_ns, status.st_ino))
    return sorted(marks)
