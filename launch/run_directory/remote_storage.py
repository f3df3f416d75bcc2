"""Run directories at a URL: object stores and other file systems supported by `fsspec`.

A directory that is usable only as a whole, such as a checkpoint, is stored with a file `DONE` last, and is ignored
without it.
"""

import asyncio
import contextlib
import errno
import logging
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import CallboardError, named_as, one_line
from ...files.atomic_files import file_draft
from ...files.guarded_files import open_regular
from ...files.manifest import MANIFEST, file_damage, read_manifest, write_manifest
from ...messages.install_commands import install_command
from .layout import KEEP_MARK, POLICIES, RunDirectory, is_checkpoint_name, newest_of_steps

KEPT = 2
"""Directories of a kind that are kept, such as checkpoints; a damaged one is replaced by the one before it."""
BEST_POLICIES = ("checkpoints/best.npz", "checkpoints/best-before.npz")
_DONE = "DONE"
_TRIES_FOR_NEWEST = 10
_MOST_BYTES = 2**32
"""Bound on a file that no manifest describes."""
_FREE_BYTES = 2**30
_SILENT_SECONDS = 30.0
_LEAST_BYTES = 2**16
"""Bytes that a web server has to send while it is waited for, in all, for so many seconds."""
_MOST_PAGE_BYTES = 2**24
"""Bound on a page of a web server that lists files."""
_MOST_ANSWERS = 10_000
"""Bound on the answers of a web server to one question: each page may lead to further ones."""
_logger = logging.getLogger(__name__)


class StorageError(CallboardError):
    """A URL cannot be read; the cause is the error of its backend."""


def is_url(path: str | os.PathLike[str] | None) -> bool:
    """Returns whether a run directory is a URL, such as `s3://bucket/run`."""
    return isinstance(path, str) and "://" in path


class Storage:
    """The files of a run at a URL.

    Args:
      url: URL of the run directory.

    Raises:
      CallboardError: the URL cannot be used, or a package for it is missing.
    """

    def __init__(self, url: str):
        try:
            import fsspec
        except ImportError as error:
            raise CallboardError(
                f"the run directory {url} needs the package fsspec: {install_command('callboard[ray]')}"
            ) from error
        self.url = url
        self._answers = 0
        if "::" in url:  # Of what is behind another file system, neither owner nor size would be checked.
            raise StorageError(f"the run directory {url} has '::', which is not supported: name one plain URL")
        try:
            settings = self._of_web_servers() if url.startswith(("http://", "https://")) else {}
            self._files, self._root = fsspec.core.url_to_fs(url, **settings)
        except Exception as error:  # Each storage backend raises its own errors.
            raise StorageError(f"the run directory {url} cannot be used: {' '.join(str(error).split())}") from error

    @property
    def local(self) -> pathlib.Path | None:
        """The directory, if the URL is that of one on this machine."""
        return pathlib.Path(self._root) if "file" in self._protocols() else None

    @contextlib.contextmanager
    def _reading(self, no_room: StorageError | None = None) -> Iterator[None]:
        self._answers = 0
        try:
            yield
        except (FileNotFoundError, CallboardError):
            raise
        except Exception as error:  # As above.
            if no_room is not None and isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise no_room from error
            raise StorageError(f"{self.url} cannot be read: {one_line(error)}") from error

    def exists(self, name: str) -> bool:
        with self._reading():
            self._files.invalidate_cache()
            return bool(self._files.exists(self._at(name)))

    def fetch(self, name: str, directory: pathlib.Path, most_bytes: int = _MOST_BYTES) -> bool:
        """Downloads a file into a local directory; returns False if there is none.

        Raises:
          StorageError: it cannot be read, or has more than `most_bytes`, or more than there is room for.
        """
        if not self.exists(name):
            return False
        copy = directory / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
        room = free - min(_FREE_BYTES, free // 2)
        no_room = StorageError(f"{directory} has no room for {self.url}/{name}: free some, or name another directory")

        def bounded(size: int | None) -> None:
            if size is not None and size > most_bytes:
                raise StorageError(
                    f"{self.url}/{name} has more than {most_bytes:,} bytes, the most that is read of it here"
                )
            if size is not None and size > room:
                raise no_room

        with self._reading(no_room), contextlib.ExitStack() as failed:
            if self.local is not None:
                with open(open_regular(self._at(name)), "rb") as file:
                    bounded(os.fstat(file.fileno()).st_size)
                    failed.callback(copy.unlink, missing_ok=True)
                    with open(copy, "wb") as written:
                        shutil.copyfileobj(file, written, 2**20)
                failed.pop_all()
                return True
            from fsspec.callbacks import Callback

            class Bounded(Callback):
                """Ends a download that becomes too large: a web server need not say how long a file is."""

                def relative_update(self, inc: int = 1) -> None:
                    super().relative_update(inc)
                    bounded(self.value)

            bounded(self._files.size(self._at(name)))
            failed.callback(copy.unlink, missing_ok=True)
            self._files.get_file(self._at(name), str(copy), callback=Bounded())
            failed.pop_all()
        return True

    def fetch_newest(
        self,
        folder: str,
        directory: pathlib.Path,
        only: Sequence[str] | None = None,
        notify: Callable[[str], None] = _logger.warning,
        checkpoint: str | None = None,
    ) -> bool:
        """Downloads the newest complete directory in a folder whose contents match its manifest, if there is one.

        Damaged directories are renamed to `damaged-...`, and the previous one is used.

        Args:
          folder: for example `checkpoints`.
          directory: the local run directory.
          only: names of the files to download; the local manifest then lists only those.  None downloads all.
          notify: receives a line about every damaged directory.
          checkpoint: the step that the directory is of, or its name, see `Checkpoints.named`; None for any.

        Returns:
          Whether there was one.
        """
        tried: set[str] = set()
        for _ in range(_TRIES_FOR_NEWEST):
            candidates = [name for name in self._whole(folder) if name not in tried]
            if checkpoint is not None:
                step = int(checkpoint.partition(".")[0])
                candidates = [name for name in candidates if _step_of(name) == step]
                candidates.sort(key=lambda name: name == checkpoint)
            if not candidates:
                break
            name = f"{folder}/{candidates[-1]}"
            wrong = self._fetch_whole(name, directory, only)
            if not wrong:
                return True
            shutil.rmtree(directory / name, ignore_errors=True)
            if self.exists(f"{name}/{_DONE}"):
                tried.add(candidates[-1])
                self._set_aside(name, wrong, notify)
            # Otherwise a newer one has replaced it in the meantime.
        for damaged in self._files.glob(self._at(f"{folder}/damaged-*")):
            # Local checks must see that there was a checkpoint, although it is damaged.
            (directory / folder / damaged.rsplit("/", 1)[1]).mkdir(parents=True, exist_ok=True)
        return False

    def steps(self) -> list[int]:
        """Returns the learner steps of all complete checkpoints, the newest last."""
        found = (_step_of(name) for name in self._whole("checkpoints"))
        return [step for step in dict.fromkeys(found) if step is not None]

    def _fetch_whole(self, name: str, directory: pathlib.Path, only: Sequence[str] | None) -> str:
        """Downloads a directory, or some of its files; returns what is wrong with it, empty if nothing."""
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
                    self.fetch(f"{name}/{file}", directory, expected.size)
                    wrong = file_damage(directory / name / file, expected)
                    if wrong:
                        return f"{file} {wrong}"
        except (ValueError, OSError) as error:
            return str(error)
        if only is not None:
            write_manifest(directory / name, only)
        return ""

    def _set_aside(self, name: str, wrong: str, notify: Callable[[str], None]) -> None:
        folder, _, last = name.rpartition("/")
        kept = f"{folder}/damaged-{last}"
        notify(f"{self.url}/{name} is damaged ({wrong}) and not used; it is kept as {kept}")
        try:
            self.remove(f"{name}/{_DONE}")
            self._files.mv(self._at(name), self._at(kept), recursive=True)
        except Exception as error:  # Each storage backend raises its own errors; it may also be read-only.
            _logger.warning("%s/%s could not be renamed: %s", self.url, name, error)

    def store(self, name: str, directory: pathlib.Path) -> None:
        """Uploads a local file; readers see the old file or the new one, never a part."""
        self._store_as(name, directory / name)

    def store_whole(self, name: str, directory: pathlib.Path, keep: int = KEPT) -> None:
        """Uploads a directory such as `checkpoints/000000000100`, and keeps the newest `keep` in its folder."""
        folder = name.rpartition("/")[0]
        # Hard links, because the node may remove its old checkpoints during the upload.
        with tempfile.TemporaryDirectory(dir=directory) as links:
            kept = pathlib.Path(links) / "kept"
            shutil.copytree(directory / name, kept, copy_function=os.link)
            self.remove(f"{name}/{_DONE}")
            for path in sorted(path for path in kept.rglob("*") if path.is_file() and path != kept / _DONE):
                self._store_as(f"{name}/{path.relative_to(kept)}", path)
            (kept / _DONE).touch()
            self._store_as(f"{name}/{_DONE}", kept / _DONE)
        self._remove_old(folder, name.rpartition("/")[2], keep)

    def _remove_old(self, folder: str, newest: str, keep: int) -> None:
        """Removes all but the newest complete directories, and incomplete ones of writers that have died."""
        whole = self._whole(folder)
        marked = {path.rsplit("/", 2)[1] for path in self._files.glob(self._at(f"{folder}/*/{KEEP_MARK}"))}
        kept = {*marked, *newest_of_steps([name for name in whole if name not in marked], _step_of, keep)}
        for entry in self._files.ls(self._at(folder), detail=True):
            old = entry["name"].rstrip("/").rpartition("/")[2]
            half = entry["type"] == "directory" and old not in whole and old < newest
            if half or (old in whole and old not in kept):
                self.remove(f"{folder}/{old}/{_DONE}")
                self._files.rm(self._at(f"{folder}/{old}"), recursive=True)

    def shards(self) -> list[int]:
        """Returns the replay shards that have a checkpoint."""
        self._files.invalidate_cache()
        with self._reading():
            found = {path.rsplit("/", 4)[1] for path in self._files.glob(self._at(f"replay/*/checkpoints/*/{_DONE}"))}
        return sorted(int(name) for name in found if name.isdigit())

    def _whole(self, folder: str) -> list[str]:
        """Returns the names of the complete directories in a folder, the newest last."""
        with self._reading():
            self._files.invalidate_cache()
            return sorted(path.rsplit("/", 2)[1] for path in self._files.glob(self._at(f"{folder}/*/{_DONE}")))

    def _store_as(self, name: str, path: pathlib.Path) -> None:
        folder, _, last = self._at(name).rpartition("/")
        self._files.makedirs(folder, exist_ok=True)
        if "file" in self._protocols():
            # fsspec's transactions would copy it from a temporary file, so readers could see a part.
            with file_draft(pathlib.Path(folder) / last) as draft:
                shutil.copyfile(path, draft)
            return
        with path.open("rb") as local, self._files.transaction, self._files.open(self._at(name), "wb") as remote:
            shutil.copyfileobj(local, remote, 2**20)

    def folders_with(self, name: str) -> list[str]:
        """Returns the directories, at any depth, that contain a file of this name; "." stands for this one."""
        with self._reading():
            self._files.invalidate_cache()
            if not self._files.exists(self._root):
                return []
            paths = [path.removeprefix(self._root).strip("/") for path in self._files.find(self._root)]
        return [path.rpartition("/")[0] or "." for path in paths if path.rpartition("/")[2] == name]

    def _of_web_servers(self) -> dict[str, Any]:
        """Returns settings of the backend for `http://`: bounds on silence, on pages, and on how many there are."""
        import aiohttp

        storage = self

        class Bounded(aiohttp.ClientResponse):
            async def start(self, connection: Any) -> Any:
                storage._answers += 1
                if storage._answers > _MOST_ANSWERS:
                    raise ValueError(f"it has more than {_MOST_ANSWERS:,} pages and files")
                await asyncio.wait_for(super().start(connection), _SILENT_SECONDS)
                self.content: Any = _Moving(self.content)
                return self

            async def read(self) -> bytes:
                page = bytearray()
                while part := await self.content.read(2**16):
                    page += part
                    if len(page) > _MOST_PAGE_BYTES:
                        raise ValueError(f"a page has more than {_MOST_PAGE_BYTES:,} bytes")
                return bytes(page)

            async def text(self, encoding: str | None = None, errors: str = "replace") -> str:
                return (await self.read()).decode(encoding or "utf-8", errors)

        silence = aiohttp.ClientTimeout(total=None, sock_connect=_SILENT_SECONDS, sock_read=_SILENT_SECONDS)
        # One of its own: the backend keeps file systems, and those of others count their answers elsewhere.
        return {"client_kwargs": {"timeout": silence, "response_class": Bounded}, "skip_instance_cache": True}

    def _protocols(self) -> Sequence[str]:
        protocols = self._files.protocol
        return (protocols,) if isinstance(protocols, str) else protocols

    def find(self, pattern: str) -> list[str]:
        """Returns the names of the files that match a pattern such as `policies/*/experiment.yaml`."""
        beginning = self._at("")
        with self._reading():
            return sorted(str(path).removeprefix(beginning) for path in self._files.glob(self._at(pattern)))

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"


class _Moving:
    """The body of an answer, which has to move on: slow ones are ended, large ones are not.

    Args:
      body: the body, as aiohttp reads it.
    """

    def __init__(self, body: Any):
        self._body = body
        self._waited, self._bytes = 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def read(self, most: int = -1) -> bytes:
        begun = time.monotonic()
        part = await self._body.read(most)
        self._waited += time.monotonic() - begun
        self._bytes += len(part)
        if self._waited >= _SILENT_SECONDS:
            if part and self._bytes < _LEAST_BYTES:
                raise ValueError(f"it sent {self._bytes:,} bytes in {self._waited:.0f} s, which is too slow")
            self._waited, self._bytes = 0.0, 0
        return part


def check_run_owner(run: str | pathlib.Path, otherwise: str) -> None:
    """Refuses a run of this machine, named by its path or a URL, that others may have written.

    Raises:
      CallboardError: see `RunDirectory.check_owner`.
    """
    path = Storage(str(run)).local if is_url(str(run)) else pathlib.Path(run)
    if path is not None:
        RunDirectory(path).check_owner(otherwise)


@contextlib.contextmanager
def local_copy(run: str | pathlib.Path, checkpoint: str = "latest", whole: bool = False) -> Iterator[RunDirectory]:
    """Yields a run directory to read from; for a URL, a temporary local copy of the run's experiment and policies.

    Videos made in such a copy are uploaded at the end.

    Args:
      run: the run directory, a path or a URL.
      checkpoint: the checkpoint to copy, as in `RunReference`.
      whole: whether to copy the learner's state too, not only the policy.

    Raises:
      CallboardError: the run at the URL has no checkpoint of that step.
    """
    if not is_url(run):
        yield RunDirectory(pathlib.Path(run))
        return
    storage = Storage(str(run))
    with tempfile.TemporaryDirectory(prefix="callboard-") as path, named_as(path, run):
        directory = RunDirectory(pathlib.Path(path), url=storage.url)
        fetch_run(storage, directory, checkpoint, whole)
        yield directory
        for video in directory.videos.glob("*"):
            storage.store(str(video.relative_to(directory.path)), directory.path)


def fetch_run(storage: Storage, directory: RunDirectory, checkpoint: str = "latest", whole: bool = False) -> None:
    """Downloads experiment, counters, policies and settings of replay, to evaluate a run or to check a resume.

    Args:
      storage: the run.
      directory: the local directory.
      checkpoint: see `local_copy`.
      whole: see `local_copy`.

    Raises:
      CallboardError: there is no checkpoint of that step.
    """
    for name in ("experiment.yaml", "environment.json", "ratings.json", "counters.json"):
        storage.fetch(name, directory.path)
    policies = [path.split("/")[1] for path in storage.find(f"{POLICIES}/*/experiment.yaml")]
    for policy in policies:
        fetch_run(Storage(f"{storage.url}/{POLICIES}/{policy}"), directory.of_policy(policy), checkpoint, whole)
    if policies:
        return
    for name in storage.find("snapshots/*.npz"):
        storage.fetch(name, directory.path)
    for name in BEST_POLICIES:
        storage.fetch(name, directory.path)
    named = checkpoint if checkpoint[:1].isdecimal() else None
    only = None if whole else ["policy.npz", "counters.json"]
    if not storage.fetch_newest("checkpoints", directory.path, only=only, checkpoint=named) and named:
        best = ["best"] if any((directory.path / name).exists() for name in BEST_POLICIES) else []
        steps = [str(kept) for kept in storage.steps()]
        choices = [*best, *(["latest"] if steps else []), *steps]
        hint = f"choose from {', '.join(choices)}" if choices else "train it for longer"
        raise CallboardError(f"{storage.url} has no checkpoint {checkpoint}; {hint}")
    for shard in storage.shards():
        storage.fetch_newest(f"replay/{shard}/checkpoints", directory.path, only=["settings.json"])


def _step_of(name: str) -> int | None:
    """Returns the step of a directory such as `000000000100.001`; None for other names."""
    return int(name.partition(".")[0]) if is_checkpoint_name(name) else None
