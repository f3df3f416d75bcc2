"""Run directories at a URL: object stores and other file systems that `fsspec` knows.

Every node works in a local directory.  What it needs from earlier lives is fetched before it begins, and what it owns
is stored every few seconds and when it ends.  A directory that is of use only as a whole, such as a checkpoint, is
stored with an empty or real file `DONE` last, and counts as soon as that is there.
"""

import contextlib
import logging
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...atomic_files import file_draft
from ...data import CallboardError
from ...manifest import MANIFEST, file_damage, read_manifest, write_manifest
from .layout import RunDirectory, is_checkpoint_name

_STORE_SECONDS = 5.0
# Storing may take this part of the time, at most: what is large is stored less often.
_STORE_SHARE = 0.2
_TRIES = 3
_RETRY_SECONDS = 1.0
_KEEP = 2
_DONE = "DONE"
_TRIES_FOR_NEWEST = 10
_BEST_POLICIES = ["checkpoints/best.npz", "checkpoints/best-before.npz"]
_logger = logging.getLogger(__name__)


def is_url(path: str | os.PathLike[str] | None) -> bool:
    """Whether a run directory is a URL, such as `s3://bucket/run`."""
    return isinstance(path, str) and "://" in path


class Storage:
    """What a run keeps at a URL.

    Args:
      url: of the run directory.

    Raises:
      CallboardError: it cannot be reached that way, or a package is missing.
    """

    def __init__(self, url: str):
        try:
            import fsspec
        except ImportError as error:
            raise CallboardError(f"the run directory {url} needs the package fsspec: install callboard[ray]") from error
        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise CallboardError(f"the run directory {url} cannot be used: {error}") from error

    def exists(self, name: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.exists(self._at(name)))

    def fetch(self, name: str, directory: pathlib.Path) -> bool:
        """Brings a file into a local directory; False if there is none."""
        if not self.exists(name):
            return False
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        self._files.get_file(self._at(name), str(directory / name))
        return True

    def fetch_newest(
        self,
        folder: str,
        directory: pathlib.Path,
        only: Sequence[str] | None = None,
        say: Callable[[str], None] = _logger.warning,
    ) -> None:
        """Brings the newest whole directory in a folder, if there is one, that is as its manifest says.

        A damaged one is renamed to `damaged-...`, and the one before it is taken.

        Args:
          folder: for example `checkpoints`.
          directory: the local run directory.
          only: names of the files that are wanted; the manifest is then one of those.  None brings all.
          say: is given a line about every directory that is damaged.
        """
        tried: set[str] = set()
        for _ in range(_TRIES_FOR_NEWEST):
            candidates = [name for name in self._whole(folder) if name not in tried]
            if not candidates:
                break
            name = f"{folder}/{candidates[-1]}"
            wrong = self._fetch_whole(name, directory, only)
            if not wrong:
                return
            shutil.rmtree(directory / name, ignore_errors=True)
            if self.exists(f"{name}/{_DONE}"):
                tried.add(candidates[-1])
                self._set_aside(name, wrong, say)
            # Otherwise a newer one has taken its place meanwhile.
        for damaged in self._files.glob(self._at(f"{folder}/damaged-*")):
            # Those who look here shall not believe that there never was one.
            (directory / folder / damaged.rsplit("/", 1)[1]).mkdir(parents=True, exist_ok=True)

    def _fetch_whole(self, name: str, directory: pathlib.Path, only: Sequence[str] | None) -> str:
        """Brings a directory, or some files of it; gives what is wrong with it, if anything."""
        try:
            if not self.fetch(f"{name}/{MANIFEST}", directory):
                return f"{MANIFEST} is missing"
            entries = read_manifest(directory / name / MANIFEST)
            found = self._files.find(self._at(name), detail=True)
            sizes = {path[len(self._at(name)) + 1 :]: details["size"] for path, details in found.items()}
            for file, expected in entries.items():
                if sizes.get(file) != expected.size:
                    return f"{file} has {sizes.get(file, 0):,} bytes instead of {expected.size:,}"
                if only is None or file in only:
                    self.fetch(f"{name}/{file}", directory)
                    wrong = file_damage(directory / name / file, expected)
                    if wrong:
                        return f"{file} {wrong}"
        except (ValueError, FileNotFoundError) as error:
            return str(error)
        if only is not None:
            write_manifest(directory / name, only)
        return ""

    def _set_aside(self, name: str, wrong: str, say: Callable[[str], None]) -> None:
        folder, _, last = name.rpartition("/")
        kept = f"{folder}/damaged-{last}"
        say(f"{self.url}/{name} is damaged ({wrong}) and not used; it is kept as {kept}")
        try:
            self.remove(f"{name}/{_DONE}")
            self._files.mv(self._at(name), self._at(kept), recursive=True)
        except Exception as error:  # Every kind of storage raises its own errors; it may be one that is only read.
            _logger.warning("%s/%s could not be renamed: %s", self.url, name, error)

    def store(self, name: str, directory: pathlib.Path) -> None:
        """Stores a local file; others see the old one or the new one, never a part."""
        self._store_as(name, directory / name)

    def store_whole(self, name: str, directory: pathlib.Path) -> None:
        """Stores a directory such as `checkpoints/000000000100`, and removes old ones beside it."""
        folder = name.rpartition("/")[0]
        # Links, because the node may remove its old checkpoints while they are stored.
        with tempfile.TemporaryDirectory(dir=directory) as links:
            kept = pathlib.Path(links) / "kept"
            shutil.copytree(directory / name, kept, copy_function=os.link)
            self.remove(f"{name}/{_DONE}")
            for path in sorted(path for path in kept.rglob("*") if path.is_file() and path != kept / _DONE):
                self._store_as(f"{name}/{path.relative_to(kept)}", path)
            (kept / _DONE).touch()
            self._store_as(f"{name}/{_DONE}", kept / _DONE)
        self._remove_old(folder, name.rpartition("/")[2])

    def _remove_old(self, folder: str, newest: str) -> None:
        """Removes all but the newest whole directories, and what was never whole: who stored that has died."""
        whole = self._whole(folder)
        for entry in self._files.ls(self._at(folder), detail=True):
            old = entry["name"].rstrip("/").rpartition("/")[2]
            half = entry["type"] == "directory" and old not in whole and old < newest
            if half or old in whole[:-_KEEP]:
                self.remove(f"{folder}/{old}/{_DONE}")
                self._files.rm(self._at(f"{folder}/{old}"), recursive=True)

    def shards(self) -> list[int]:
        """The replay shards that have kept something."""
        self._files.invalidate_cache()
        found = {path.rsplit("/", 4)[1] for path in self._files.glob(self._at(f"replay/*/checkpoints/*/{_DONE}"))}
        return sorted(int(name) for name in found if name.isdigit())

    def _whole(self, folder: str) -> list[str]:
        """Names of the whole directories in a folder, the newest last."""
        self._files.invalidate_cache()
        return sorted(path.rsplit("/", 2)[1] for path in self._files.glob(self._at(f"{folder}/*/{_DONE}")))

    def _store_as(self, name: str, path: pathlib.Path) -> None:
        folder, _, last = self._at(name).rpartition("/")
        self._files.makedirs(folder, exist_ok=True)
        if "file" in self._protocols():
            # fsspec's transactions would copy it from the temporary files, so that others could see a part.
            with file_draft(pathlib.Path(folder) / last) as draft:
                shutil.copyfile(path, draft)
            return
        with path.open("rb") as local, self._files.transaction, self._files.open(self._at(name), "wb") as remote:
            shutil.copyfileobj(local, remote, 2**20)

    def _protocols(self) -> Sequence[str]:
        protocols = self._files.protocol
        return (protocols,) if isinstance(protocols, str) else protocols

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"


class Mirror:
    """Stores what a node owns, from a thread of its own.

    Args:
      storage: where to.
      node: its name, for example `learner/0`.
      directory: where the node writes.
      say: is told, in a line, when storing begins to fail.
    """

    def __init__(
        self, storage: Storage, node: str, directory: RunDirectory, say: Callable[[str], None] = lambda text: None
    ):
        self._storage = storage
        self._directory = directory
        self._label, _, self._number = node.partition("/")
        self._log = str(directory.log(node).relative_to(directory.path))
        self._say = say
        self._failing = False
        self._stored: dict[str, Any] = {}
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._store_for_ever, name="storage", daemon=True)

    def fetch(self) -> None:
        """Brings what the node goes on from, and what it appends to."""
        storage, path = self._storage, self._directory.path
        storage.fetch(self._log, path)
        if self._label == "learner":
            storage.fetch("checkpoints/incarnation", path)
            storage.fetch_newest("checkpoints", path, say=self._say)
        elif self._label == "evaluator":
            for name in _BEST_POLICIES:
                storage.fetch(name, path)
        elif self._label == "coordinator":
            storage.fetch("metrics.jsonl", path)
            storage.fetch("counters.json", path)
        elif self._label == "replay":
            storage.fetch_newest(f"replay/{self._number}/checkpoints", path, say=self._say)
        self._stored = {name: self._state(name) for name in [*self._owned_files(), *self._owned_wholes()]}

    def start(self) -> None:
        self._thread.start()

    def close(self) -> bool:
        """Stores what is new for the last time; whether that worked."""
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
        except Exception as error:  # Every kind of storage raises its own errors; what it did not take, it may later.
            what = " ".join(f"{type(error).__name__}: {error}".split())
            logging.warning("%s did not take what is new: %s", self._storage.url, what)
            if not self._failing:
                self._say(f"{self._storage.url} did not take what is new, and is tried again: {what}")
            self._failing = True
            return False
        self._failing = False
        return True

    def _store_new(self) -> None:
        """Stores all that it can.  Raises the first error, once everything has been tried."""
        first_error: Exception | None = None
        for name in [*self._owned_wholes()[-1:], *self._owned_files()]:
            state = self._state(name)
            if state is None or self._stored.get(name) == state:
                continue
            try:
                if (self._directory.path / name).is_dir():
                    self._storage.store_whole(name, self._directory.path)
                else:
                    self._storage.store(name, self._directory.path)
                self._stored[name] = state
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _owned_files(self) -> list[str]:
        named = {
            "learner": ["checkpoints/incarnation"] if self._number == "0" else [],
            "evaluator": _BEST_POLICIES,
            "coordinator": ["metrics.jsonl", "counters.json"],
        }
        path = self._directory.path
        owned = [*named.get(self._label, []), self._log, f"{self._log}.1"]
        if self._label == "coordinator":
            owned += [str(file.relative_to(path)) for file in self._directory.tensorboard.rglob("*") if file.is_file()]
        return [name for name in owned if (path / name).exists()]

    def _owned_wholes(self) -> list[str]:
        """Whole directories that the node owns, the newest last."""
        path = self._directory.path
        if self._label == "learner" and self._number == "0":
            folder = self._directory.checkpoints
        elif self._label == "replay":
            folder = self._directory.replay(int(self._number)) / "checkpoints"
        else:
            return []
        # These appear whole; a draft has another name.
        found = [entry for entry in folder.glob("[0-9]*") if is_checkpoint_name(entry.name)]
        return sorted(str(entry.relative_to(path)) for entry in found)

    def _state(self, name: str) -> Any:
        """Changes when a file, or a directory that was written anew, is another one; None if there is none."""
        try:
            found = (self._directory.path / name).stat()
        except FileNotFoundError:
            return None
        if (self._directory.path / name).is_dir():
            return found.st_ino
        return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def local_copy(run: str | pathlib.Path) -> Iterator[RunDirectory]:
    """A run directory to read from; of one at a URL, a copy of its experiment and policies, there while it is used.

    Videos that are made in it are stored.
    """
    if not is_url(run):
        yield RunDirectory(pathlib.Path(run))
        return
    storage = Storage(str(run))
    with tempfile.TemporaryDirectory(prefix="callboard-") as path:
        directory = RunDirectory(pathlib.Path(path), url=storage.url)
        fetch_run(storage, directory)
        yield directory
        for video in directory.videos.glob("*"):
            storage.store(str(video.relative_to(directory.path)), directory.path)


def fetch_run(storage: Storage, directory: RunDirectory) -> None:
    """Brings the experiment, its policies, and how its replay was made: enough to evaluate it and to check a resume."""
    storage.fetch("experiment.yaml", directory.path)
    for name in _BEST_POLICIES:
        storage.fetch(name, directory.path)
    storage.fetch_newest("checkpoints", directory.path, only=["policy.npz"])
    for shard in storage.shards():
        storage.fetch_newest(f"replay/{shard}/checkpoints", directory.path, only=["settings.json"])
