"""The files of a node where the run directory is at a URL.

Every node works in a local directory.  Files it needs from earlier incarnations are fetched before it starts, and files
it owns are stored every few seconds and when it ends.
"""

import logging
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..node_names import kind_of, number_of, policy_of
from .layout import POLICIES, RunDirectory, is_checkpoint_name
from .remote_storage import BEST_POLICIES, KEPT, Storage, StorageError

_STORE_SECONDS = 5.0
# Upper bound on the fraction of time spent on storing: large files are stored less often.
_STORE_SHARE = 0.2
_TRIES = 3
_RETRY_SECONDS = 1.0


class Mirror:
    """Uploads the files that a node owns, from a background thread.

    Args:
      storage: the destination.
      node: name of the node, for example `learner/0`.
      directory: the local run directory.
      notify: receives a line when storing begins to fail.
      keep: number of the learner's checkpoints that are kept.
    """

    def __init__(
        self,
        storage: Storage,
        node: str,
        directory: RunDirectory,
        notify: Callable[[str], None] = lambda text: None,
        keep: int = KEPT,
    ):
        self._storage = storage
        self._directory = directory
        self._label, self._number = kind_of(node), number_of(node)
        policy = policy_of(node)
        self._below = f"{POLICIES}/{policy}/" if policy else ""
        self._of_node = directory.of_policy(policy)
        self._log = str(directory.log(node).relative_to(directory.path))
        self._notify = notify
        self._keep = keep if self._label == "learner" else KEPT
        self._failing = False
        self._stored: dict[str, Any] = {}
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._store_for_ever, name="storage", daemon=True)

    def fetch(self) -> None:
        """Downloads the files from which the node continues, and those it appends to."""
        try:
            self._fetch()
        except StorageError as error:
            # Not an error of the user's settings, which would end the run: the node is started again.
            raise (error.__cause__ or error) from None

    def _fetch(self) -> None:
        storage, path = self._storage, self._directory.path
        storage.fetch(self._log, path)
        if self._label == "learner":
            storage.fetch(f"{self._below}checkpoints/incarnation", path)
            storage.fetch_newest(f"{self._below}checkpoints", path, notify=self._notify)
            for name in storage.find(f"{self._below}snapshots/*.npz"):
                storage.fetch(name, path)
        elif self._label == "evaluator":
            runs = ["experiment.yaml", *storage.find(f"{POLICIES}/*/experiment.yaml")]
            for below in [run.removesuffix("experiment.yaml") for run in runs]:
                for name in BEST_POLICIES:
                    storage.fetch(f"{below}{name}", path)
        elif self._label == "coordinator":
            storage.fetch("metrics.jsonl", path)
            storage.fetch("counters.json", path)
            storage.fetch("control.json", path)
            storage.fetch("ratings.json", path)
        elif self._label == "replay":
            storage.fetch_newest(f"{self._below}replay/{self._number}/checkpoints", path, notify=self._notify)
        self._stored = {name: self._state(name) for name in [*self._owned_files(), *self._owned_wholes()]}

    def start(self) -> None:
        self._thread.start()

    def close(self) -> bool:
        """Uploads new content a last time; returns whether that succeeded."""
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_RETRY_SECONDS)
            if self._try_to_store():
                return True
        return False

    def _store_for_ever(self) -> None:
        pause = _STORE_SECONDS
        while not self._wake.wait(pause):
            begun = time.monotonic()
            self._try_to_store()
            pause = max(_STORE_SECONDS, (time.monotonic() - begun) / _STORE_SHARE)

    def _try_to_store(self) -> bool:
        try:
            self._store_new()
        except Exception as error:  # Each storage backend raises its own errors; a failed upload is retried later.
            what = " ".join(f"{type(error).__name__}: {error}".split())
            logging.warning("%s did not take what is new: %s", self._storage.url, what)
            if not self._failing:
                self._notify(f"{self._storage.url} did not take what is new, and is tried again: {what}")
            self._failing = True
            return False
        self._failing = False
        return True

    def _store_new(self) -> None:
        """Uploads everything it can, and then raises the first error, if there was one."""
        first_error: Exception | None = None
        for name in [*self._owned_wholes()[-self._kept_apart :], *self._owned_files()]:
            state = self._state(name)
            if state is None or self._stored.get(name) == state:
                continue
            try:
                if (self._directory.path / name).is_dir():
                    self._storage.store_whole(name, self._directory.path, self._keep)
                else:
                    self._storage.store(name, self._directory.path)
                self._stored[name] = state
            except Exception as error:
                first_error = first_error or error
        # The learner keeps only the newest snapshots.
        for name in [name for name in self._stored if name.startswith(f"{self._below}snapshots/")]:
            if self._state(name) is None:
                self._storage.remove(name)
                del self._stored[name]
        if first_error is not None:
            raise first_error

    @property
    def _kept_apart(self) -> int:
        """Number of newest checkpoint directories to upload: all that are kept, or only the last one."""
        return self._keep if self._keep > KEPT else 1

    def _owned_files(self) -> list[str]:
        path = self._directory.path
        snapshots = [file.relative_to(path) for file in self._of_node.snapshots.glob("*.npz")]
        of_learner = [f"{self._below}checkpoints/incarnation", f"{self._below}network.txt", *map(str, snapshots)]
        named: dict[str, Sequence[str]] = {
            "learner": of_learner if self._number == 0 else [],
            "evaluator": [
                *BEST_POLICIES,
                *(f"{POLICIES}/{policy}/{name}" for policy in self._directory.policies for name in BEST_POLICIES),
            ],
            "coordinator": ["coordinator.json", "metrics.jsonl", "counters.json", "control.json", "ratings.json"],
        }
        owned = [*named.get(self._label, []), self._log, f"{self._log}.1"]
        written: list[pathlib.Path] = []
        if self._label in ("coordinator", "evaluator"):
            written = [*self._directory.tensorboard.rglob("*"), *self._directory.videos.glob("*.mp4")]
        elif self._label == "actor" and self._number == 0:
            training = self._directory.tensorboard / "training_videos"
            written = [*training.rglob("*"), *self._directory.videos.glob("training-*.mp4")]
        owned += [str(file.relative_to(path)) for file in written if file.is_file()]
        return [name for name in owned if (path / name).exists()]

    def _owned_wholes(self) -> list[str]:
        """Returns the directories that the node owns and that are uploaded as a whole, the newest last."""
        path = self._directory.path
        if self._label == "learner" and self._number == 0:
            folder = self._of_node.checkpoints
        elif self._label == "replay":
            folder = self._of_node.replay(self._number) / "checkpoints"
        else:
            return []
        # These appear complete; drafts have other names.
        found = [entry for entry in folder.glob("[0-9]*") if is_checkpoint_name(entry.name)]
        return sorted(str(entry.relative_to(path)) for entry in found)

    def _state(self, name: str) -> Any:
        """Returns a value that changes when a file or directory is replaced or modified; None if there is none."""
        try:
            found = (self._directory.path / name).stat()
        except FileNotFoundError:
            return None
        if (self._directory.path / name).is_dir():
            return found.st_ino
        return found.st_ino, found.st_size, found.st_mtime_ns
