"""Writes episodes as a Minari data set that is complete at every instant, whatever happens to the writer.

A data set is a folder:

    NAME-v0/data/metadata.json        spaces, numbers of episodes and steps, environment, versions
    NAME-v0/data/main_data.hdf5       a link to every episode
    NAME-v0/data/parts/00000.hdf5     the episodes themselves
    NAME-v0/data/lock                 locked by the process that writes

Each of the first three is replaced as a whole, in the order from the last to the first.
"""

import fcntl
import json
import os
import pathlib
import re
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...errors import CallboardError
from ...files.atomic_files import make_as_open, remove_drafts, sync, write_file
from ...files.guarded_files import open_regular, read_regular
from ...specs import EnvironmentSpec
from ..batches.encoding import encoding_of
from .dataset_metadata import METADATA
from .episode_columns import EpisodeColumns, check_recordable
from .guarded_hdf5 import MAIN, PARTS
from .hdf5_episodes import edited, link_episodes, read_links, write_episodes
from .minari_package import MINARI_VERSION, require_minari
from .native_values import space_of

T = TypeVar("T")
_LOCK = "lock"
_PART_BYTES = 2**24
_NAME = re.compile(r"[-_\w]+-v\d+")
_MEGABYTE = 10**6


class EpisodeFiles:
    """Appends episodes to a data set, to which one process at a time writes: until `close`, or until it has ended.

    In one process, the newest of these is the one that writes.

    Args:
      folder: the data set's folder, whose name ends with a version such as `-v0`; made if it does not exist.
      spec: spec of the environment.
      metadata: further entries of the metadata, see `recorded_metadata`; entries that exist are kept.
      limit: bytes beyond which no more episodes are taken.

    Raises:
      CallboardError: Minari is not installed, the name is none of a data set, its files are damaged, or it holds
        episodes of an environment with other spaces; or another process writes to it, or a part of it is a link.
    """

    def __init__(self, folder: pathlib.Path, spec: EnvironmentSpec, metadata: Mapping[str, Any], limit: float):
        require_minari("recording")
        from minari.serialization import serialize_space

        if not _NAME.fullmatch(folder.name):
            plain = re.sub(r"(-v\d+)?$", "", re.sub(r"[^\w-]+", "-", folder.name)) or "episodes"
            raise CallboardError(
                f"{folder.name!r} is no name of a data set, which has letters, digits, - and _ and ends with a "
                f"version, as in {plain}-v0"
            )
        self.path = folder / "data"
        self._limit = limit
        encoding = encoding_of(spec)
        observation, action = space_of(encoding.observation), space_of(encoding.action)
        check_recordable(observation, action)
        spaces = {"observation_space": serialize_space(observation), "action_space": serialize_space(action)}
        self._parts = self.path / PARTS
        for directory in (self.path, self._parts):
            if directory.is_symlink():
                raise CallboardError(f"{directory} is a symbolic link, through which nothing is written: remove it")
        make_as_open(self._parts)
        self._writer = _Writer(self.path)
        for directory in (self.path, self._parts):
            remove_drafts(directory)
        self._metadata: dict[str, Any] = {
            "dataset_id": folder.name,
            "data_format": "hdf5",
            "minari_version": MINARI_VERSION,
            **spaces,
            **metadata,
            **self._read(spaces),
        }
        self._sources: dict[str, int] = {}
        self._is_unsure = False
        """Whether a write has failed, and files may be ahead of what is known of them."""
        self.copying_seconds = 0.0
        """Time that the newest write took to copy and sync files as a whole, however few episodes it added."""
        self._count_episodes()
        self._part = len(list(self._parts.glob("*.hdf5")))

    @property
    def total_episodes(self) -> int:
        return int(self._metadata["total_episodes"])

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def close(self) -> None:
        """Lets others write to the data set."""
        self._writer.close()

    def last_number(self, source: str) -> int:
        """Returns the newest number of a source, see `append`; 0 if it is not known."""
        self._settle()
        return self._sources.get(source, 0)

    def append(self, episodes: Sequence[EpisodeColumns], numbers: Mapping[str, int] | None = None) -> bool:
        """Writes episodes, all or none; returns False, and writes nothing, if the data set has reached its limit.

        Args:
          episodes: the episodes.
          numbers: what `last_number` returns from then on, by source; also to a later writer.

        Raises:
          OSError: a file could not be written; either no episode was added, or, if `last_number` says so, all were.
          CallboardError: the files were damaged meanwhile, or another one writes to them.
        """
        self._writer.check()
        self._settle()
        if self.nbytes >= self._limit:
            return False
        self.copying_seconds = 0.0
        self._is_unsure = True
        part = self._next_part()
        first = self._edit(part, lambda file: write_episodes(file, episodes, self.total_episodes))
        others = {source: number for source, number in self._sources.items() if source not in (numbers or {})}
        sources = {**others, **(numbers or {})}
        ids = range(self.total_episodes, self.total_episodes + len(episodes))
        self._edit(self.path / MAIN, lambda file: link_episodes(file, f"{PARTS}/{part.name}", first, ids, sources))
        self._sources = sources
        self._metadata["total_episodes"] = ids.stop
        self._metadata["total_steps"] += sum(episode.length for episode in episodes)
        self._metadata["dataset_size"] = round(self.nbytes / _MEGABYTE, 1)
        write_file(self.path / METADATA, json.dumps(self._metadata))
        self._is_unsure = False
        return True

    def _next_part(self) -> pathlib.Path:
        """Returns the part to which the next episodes are appended."""
        part = self._parts / f"{self._part:05}.hdf5"
        if part.exists() and part.stat().st_size > _PART_BYTES:
            self._part += 1
            part = self._parts / f"{self._part:05}.hdf5"
        return part

    def _edit(self, path: pathlib.Path, change: Callable[[Any], T]) -> T:
        """Changes an HDF5 file, or one without episodes if there is none; it is replaced as a whole at the end."""
        # No `file_draft`, which holds a lock for a moment after the replacement: HDF5 would refuse to read the file.
        draft = path.with_name(f"draft-{path.name}")
        begun = time.perf_counter()
        try:
            if os.path.lexists(path):
                os.close(open_regular(path))
            with edited(path, draft) as file:
                opened = time.perf_counter()
                result = change(file)
                changed = time.perf_counter()
            sync(draft)
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync(path.parent)
        self.copying_seconds += time.perf_counter() - changed + opened - begun
        return result

    def _read(self, spaces: Mapping[str, str]) -> dict[str, Any]:
        """Returns the metadata of the episodes that there are."""
        file = self.path / METADATA
        if not os.path.lexists(file):
            return {"total_episodes": 0, "total_steps": 0}
        try:
            found = json.loads(read_regular(file))
            different = [name for name, space in spaces.items() if found[name] != space]
            counts = found["total_episodes"], found["total_steps"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise CallboardError(f"{file} is damaged; remove {self.path.parent} to record anew") from error
        if different or not all(isinstance(count, int) for count in counts):
            raise CallboardError(
                f"{self.path.parent} holds episodes of an environment with another {different[0].replace('_', ' ')}; "
                "record to another folder"
            )
        return dict(found)

    def _settle(self) -> None:
        """Reads what the files hold if a write has failed."""
        if self._is_unsure:
            self._count_episodes()
            self._is_unsure = False

    def _count_episodes(self) -> None:
        """Counts also the episodes that were linked before a writer was killed, or failed."""
        main = self.path / MAIN
        if not main.exists():
            # A reader finds an empty data set from the beginning.
            self._edit(main, lambda file: None)
        try:
            total, steps, self._sources = read_links(self.path, self.total_episodes)
        except (OSError, ValueError, KeyError, CallboardError) as error:
            raise CallboardError(f"{main} is damaged; remove {self.path.parent} to record anew") from error
        self._metadata["total_steps"] += steps
        self._metadata["total_episodes"] = total
        write_file(self.path / METADATA, json.dumps(self._metadata))


class _Writer:
    """The right to write to a data set.

    Args:
      path: the folder with its files.

    Raises:
      CallboardError: another process has it.
    """

    _newest: "weakref.WeakValueDictionary[tuple[int, int], _Writer]" = weakref.WeakValueDictionary()

    def __init__(self, path: pathlib.Path):
        self._path = path
        status = path.stat()
        # A node that is restarted in its process may have left one.
        earlier = self._newest.get((status.st_dev, status.st_ino))
        if earlier is not None:
            earlier.close()
        try:
            descriptor = open_regular(path / _LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise CallboardError(f"{path / _LOCK} cannot be opened: {error.strerror}") from error
        self._release = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise CallboardError(
                f"another process writes to the data set {path.parent}: wait until it has ended, or record to another "
                "folder"
            ) from error
        except OSError:
            pass  # There are file systems without locks.
        self._newest[status.st_dev, status.st_ino] = self

    def close(self) -> None:
        self._release()

    def check(self) -> None:
        """Raises `CallboardError` if it was given up."""
        if not self._release.alive:
            raise CallboardError(f"the data set {self._path.parent} is closed, or written to by a later writer")
