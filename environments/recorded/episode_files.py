"""Writes episodes as a Minari data set that is complete at every instant, whatever happens to the writer.

A data set is a folder:

    NAME-v0/data/metadata.json        spaces, numbers of episodes and steps, environment, versions
    NAME-v0/data/main_data.hdf5       a link to every episode
    NAME-v0/data/parts/00000.hdf5     the episodes themselves

Each file is replaced as a whole, in the order from the last to the first.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...atomic_files import remove_drafts, sync, write_file
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..batches.encoding import encoding_of
from .episode_columns import EpisodeColumns, check_recordable
from .minari_package import MINARI_VERSION, require_minari
from .native_values import space_of

METADATA, MAIN = "metadata.json", "main_data.hdf5"
_PARTS = "parts"
_PART_BYTES = 2**24
_COMPRESSED_BYTES = 2**14
"""Size from which a column is compressed."""
_SOURCES = "callboard_sources"
_MOST_SOURCES = 200
_NAME = re.compile(r"[-_\w]+-v\d+")
_MEGABYTE = 10**6


class EpisodeFiles:
    """Appends episodes to a data set; one at a time may write to it.

    Args:
      folder: the data set's folder, whose name ends with a version such as `-v0`; made if it does not exist.
      spec: spec of the environment.
      metadata: further entries of the metadata, see `recorded_metadata`; entries that exist are kept.
      limit: bytes beyond which no more episodes are taken.

    Raises:
      CallboardError: Minari is not installed, the name is none of a data set, its files are damaged, or it holds
        episodes of an environment with other spaces.
    """

    def __init__(self, folder: pathlib.Path, spec: EnvironmentSpec, metadata: Mapping[str, Any], limit: float):
        require_minari("recording")
        from minari.serialization import serialize_space

        if not _NAME.fullmatch(folder.name):
            raise CallboardError(
                f"{folder.name!r} is no name of a data set, which ends with a version, as in "
                f"{folder.name or 'episodes'}-v0"
            )
        self.path = folder / "data"
        self._limit = limit
        encoding = encoding_of(spec)
        observation, action = space_of(encoding.observation), space_of(encoding.action)
        check_recordable(observation)
        spaces = {"observation_space": serialize_space(observation), "action_space": serialize_space(action)}
        self._parts = self.path / _PARTS
        self._parts.mkdir(parents=True, exist_ok=True)
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
        self._count_episodes()
        self._part = len(list(self._parts.glob("*.hdf5")))

    @property
    def total_episodes(self) -> int:
        return int(self._metadata["total_episodes"])

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def append(self, episodes: Sequence[EpisodeColumns], source: str = "", number: int = 0) -> bool:
        """Writes episodes; returns False, and writes nothing, if the data set has reached its limit.

        Args:
          episodes: the episodes.
          source: id of what they are from.
          number: number of the call of that source, from 1 on; a call that has been made before does nothing.

        Raises:
          OSError: a file could not be written; the data set is unchanged.
        """
        if self.nbytes >= self._limit:
            return False
        if number and self._sources().get(source, 0) >= number:
            return True
        part, first = self._write_part(episodes)
        total = self.total_episodes
        import h5py

        with self._copied(self.path / MAIN) as draft, h5py.File(draft, "a", track_order=True, locking=False) as file:
            for index in range(len(episodes)):
                file[f"episode_{total + index}"] = h5py.ExternalLink(f"{_PARTS}/{part.name}", str(first + index))
            if number:
                sources = {**self._sources(file), source: number}
                newest = dict(list(sources.items())[-_MOST_SOURCES:])
                file.attrs[_SOURCES] = json.dumps(newest)
        self._metadata["total_episodes"] = total + len(episodes)
        self._metadata["total_steps"] += sum(episode.length for episode in episodes)
        self._metadata["dataset_size"] = round(self.nbytes / _MEGABYTE, 1)
        write_file(self.path / METADATA, json.dumps(self._metadata))
        return True

    def _write_part(self, episodes: Sequence[EpisodeColumns]) -> tuple[pathlib.Path, int]:
        """Appends episodes to the newest part; returns it, and the number in it of the first of them."""
        import h5py

        part = self._parts / f"{self._part:05}.hdf5"
        if part.exists() and part.stat().st_size > _PART_BYTES:
            self._part += 1
            part = self._parts / f"{self._part:05}.hdf5"
        with self._copied(part) as draft, h5py.File(draft, "a", track_order=True, locking=False) as file:
            first = len(file)
            for index, episode in enumerate(episodes):
                _write_episode(file.create_group(str(first + index)), episode, self.total_episodes + index)
        return part, first

    @contextlib.contextmanager
    def _copied(self, path: pathlib.Path) -> Iterator[pathlib.Path]:
        """Yields a copy of an HDF5 file, or an empty file if there is none, that replaces it at the end."""
        # No `file_draft`, which holds a lock for a moment after the replacement: HDF5 would refuse to read the file.
        draft = path.with_name(f"draft-{path.name}")
        if path.exists():
            shutil.copyfile(path, draft)
        else:
            draft.write_bytes(b"")
        yield draft
        sync(draft)
        os.replace(draft, path)
        sync(path.parent)

    def _read(self, spaces: Mapping[str, str]) -> dict[str, Any]:
        """Returns the metadata of the episodes that there are."""
        file = self.path / METADATA
        if not file.exists():
            return {"total_episodes": 0, "total_steps": 0}
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            different = [name for name, space in spaces.items() if found[name] != space]
            counts = found["total_episodes"], found["total_steps"]
        except (ValueError, TypeError, KeyError) as error:
            raise CallboardError(f"{file} is damaged; remove {self.path.parent} to record anew") from error
        if different or not all(isinstance(count, int) for count in counts):
            raise CallboardError(
                f"{self.path.parent} holds episodes of an environment with another {different[0].replace('_', ' ')}; "
                "record to another folder"
            )
        return dict(found)

    def _count_episodes(self) -> None:
        """Counts the episodes that a writer linked before it was killed."""
        import h5py

        main = self.path / MAIN
        if not main.exists():
            # A reader finds an empty data set from the beginning.
            with self._copied(main) as draft, h5py.File(draft, "w", track_order=True, locking=False):
                pass
        try:
            with h5py.File(main, "r") as file:
                total = len(file)
                for index in range(self.total_episodes, total):
                    self._metadata["total_steps"] += int(file[f"episode_{index}"].attrs["total_steps"])
        except (OSError, KeyError) as error:
            raise CallboardError(f"{main} is damaged; remove {self.path.parent} to record anew") from error
        self._metadata["total_episodes"] = total
        write_file(self.path / METADATA, json.dumps(self._metadata))

    def _sources(self, file: Any = None) -> dict[str, int]:
        import h5py

        if file is not None:
            return json.loads(file.attrs.get(_SOURCES, "{}"))
        with h5py.File(self.path / MAIN, "r") as opened:
            return json.loads(opened.attrs.get(_SOURCES, "{}"))


def _write_episode(group: Any, episode: EpisodeColumns, number: int) -> None:
    import h5py

    group.attrs["id"] = number
    group.attrs["total_steps"] = episode.length
    if episode.seed is not None:
        group.attrs["seed"] = episode.seed
    group.create_group("infos")
    for name, column in episode.values.items():
        if isinstance(column, list):
            pictures = group.create_dataset(name, (len(column),), h5py.vlen_dtype(np.uint8))
            for index, picture in enumerate(column):
                pictures[index] = np.frombuffer(picture, np.uint8)
        elif column.nbytes > _COMPRESSED_BYTES:
            group.create_dataset(name, data=column, compression="gzip", compression_opts=1, shuffle=True)
        else:
            group.create_dataset(name, data=column)
