"""Writes episodes, and links to them, into HDF5 files.

Most episodes are short, and an HDF5 object takes longer to make than to fill, so that this calls HDF5's own functions:
h5py's classes take three times as long.  Only what is compressed, of varying length or text is written with those.
"""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .episode_columns import EpisodeColumns
from .guarded_hdf5 import GuardedFiles

_COMPRESSED_BYTES = 2**14
"""Size from which a column is compressed."""
_COMPACT_BYTES = 2**12
"""Size up to which a column is stored with its description."""
_FORMAT = "v110"
"""HDF5 1.10 and later read such files, whose objects are smaller than those of older versions."""
_SOURCES = "callboard_sources"
_MOST_SOURCES = 200
_INFOS = "infos"
_TOTAL_STEPS = "total_steps"


@contextlib.contextmanager
def edited(path: pathlib.Path, draft: pathlib.Path) -> Iterator[Any]:
    """Yields the content of a file, or one without episodes and links if there is none, and writes it to `draft`.

    It is in memory until then, since HDF5 itself crashes after a disk was full.

    Raises:
      OSError: it cannot be read or written.
    """
    import h5py

    mode = "a" if path.exists() else "w"
    memory: dict[str, Any] = {"driver": "core", "backing_store": False, "block_size": 2**22}
    with h5py.File(path, mode, **memory, track_order=True, locking=False, libver=_FORMAT) as file:
        yield file
        file.flush()
        content = file.id.get_file_image()
    draft.write_bytes(content)


def write_episodes(file: Any, episodes: Sequence[EpisodeColumns], first_id: int) -> int:
    """Appends episodes to a file.

    Args:
      file: what `edited` yields.
      episodes: the episodes.
      first_id: number of the first of them in the data set.

    Returns:
      The number of the first of them in the file; they follow each other there.
    """
    first, writer = len(file), _EpisodeWriter()
    for index, episode in enumerate(episodes):
        writer.write(file, str(first + index), episode, first_id + index)
    return first


def link_episodes(file: Any, target: str, first: int, ids: range, sources: Mapping[str, int]) -> None:
    """Adds links to episodes that are in another file.

    Args:
      file: the one with the links, as `edited` yields it.
      target: the other file, relative to it.
      first: the number of the first episode there.
      ids: the numbers of the episodes in the data set.
      sources: newest number of a call by source, see `EpisodeFiles.append`; of many, only the last ones are kept.
    """
    add, name = file.id.links.create_external, target.encode()
    for index, number in enumerate(ids):
        add(f"episode_{number}".encode(), name, str(first + index).encode())
    file.attrs[_SOURCES] = json.dumps(dict(list(sources.items())[-_MOST_SOURCES:]))


def read_links(folder: pathlib.Path, known: int) -> tuple[int, int, dict[str, int]]:
    """Returns the number of links of a data set, the steps of episodes after the `known` first ones, and the sources.

    Raises:
      OSError, ValueError, CallboardError: a file is damaged, or an episode is missing.
    """
    with GuardedFiles(folder) as files:
        total = files.entries
        steps = [files.episode(index).number(_TOTAL_STEPS) for index in range(known, total)]
        sources = json.loads(files.text(_SOURCES) or "{}")
        if None in steps or not isinstance(sources, dict):
            raise ValueError("its numbers are missing")
        return total, sum(filter(None, steps)), sources


class _EpisodeWriter:
    """Writes episodes one after the other, and keeps what columns of the same shape and dtype have in common."""

    def __init__(self) -> None:
        from h5py import h5d, h5p, h5s, h5t

        self._scalar, self._integer = h5s.create(h5s.SCALAR), h5t.py_create(np.dtype(np.int64))
        self._kinds: dict[tuple[tuple[int, ...], np.dtype], tuple[Any, Any]] = {}
        self._links = h5p.create(h5p.LINK_CREATE)
        self._links.set_create_intermediate_group(True)
        self._contiguous, self._compact = (h5p.create(h5p.DATASET_CREATE) for _ in range(2))
        self._compact.set_layout(h5d.COMPACT)
        for properties in (self._contiguous, self._compact):
            properties.set_fill_time(h5d.FILL_TIME_NEVER)
            properties.set_obj_track_times(False)

    def write(self, file: Any, name: str, episode: EpisodeColumns, number: int) -> None:
        from h5py import h5g

        group = h5g.create(file.id, name.encode())
        self._attribute(group, b"id", number)
        self._attribute(group, _TOTAL_STEPS.encode(), episode.length)
        if episode.seed is not None:
            self._attribute(group, b"seed", episode.seed)
        h5g.create(group, _INFOS.encode())
        for path, column in episode.values.items():
            if isinstance(column, list) or column.dtype.kind == "U" or column.nbytes > _COMPRESSED_BYTES:
                _write_large(group, path, column)
            else:
                self._write_array(group, path, column)

    def _attribute(self, group: Any, name: bytes, number: int) -> None:
        from h5py import h5a

        h5a.create(group, name, self._integer, self._scalar).write(np.array(number, np.int64))

    def _write_array(self, group: Any, path: str, column: np.ndarray) -> None:
        from h5py import h5d, h5s, h5t

        key = column.shape, column.dtype
        if key not in self._kinds:
            self._kinds[key] = h5t.py_create(column.dtype, logical=True), h5s.create_simple(column.shape)
        dtype, space = self._kinds[key]
        properties = self._compact if column.nbytes <= _COMPACT_BYTES else self._contiguous
        dataset = h5d.create(group, path.encode(), dtype, space, properties, self._links)
        dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(column))


def _write_large(group: Any, path: str, column: Any) -> None:
    """Writes pictures, texts and large arrays."""
    import h5py

    into = h5py.Group(group)
    if isinstance(column, list):
        pictures = into.create_dataset(path, (len(column),), h5py.vlen_dtype(np.uint8))
        for index, picture in enumerate(column):
            pictures[index] = np.frombuffer(picture, np.uint8)
    elif column.dtype.kind == "U":
        into.create_dataset(path, data=column.tolist(), dtype=h5py.string_dtype("utf-8"))
    else:
        into.create_dataset(path, data=column, compression="gzip", compression_opts=1, shuffle=True)
