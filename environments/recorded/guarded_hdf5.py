"""Reads arrays of recorded episodes from HDF5 files that a stranger may have made.

HDF5 follows links and takes data from any other file that a data set names, waits for pipes, loads plug-ins, and
allocates what is declared.  So files are opened only if they are regular and in the data set's folder, only the links
that `EpisodeFiles` writes are followed, and of every array it is known that the file holds it before it is read, and
how many bytes that takes.
"""

import math
import os
import pathlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import CallboardError
from ...files.guarded_files import open_regular

MAIN, PARTS = "main_data.hdf5", "parts"
_PART = re.compile(rb"parts/(\w[\w.-]*\.hdf5)")
_IN_PART = re.compile(rb"/?(\w+)")
_DEFLATE, _SHUFFLE, _FLETCHER, _LZF = 1, 2, 3, 32000
_COMPRESSION = {_DEFLATE: 1100, _SHUFFLE: 1, _FLETCHER: 1, _LZF: 100}
"""How much smaller HDF5's filters make data at most."""
_CHECKSUM_BYTES = 4
_MOST_BYTES = 2**31
"""Bytes of the arrays of an episode together."""
_CHUNK_BYTES = 2**24
_UNCHECKED_BYTES = 2**30
"""Bytes that a chunk may decompress to without being checked; one of h5py's own sizes rarely reaches them."""
_REFERENCE = np.dtype([("length", "<u4"), ("place", "V12")])
"""How a file refers to an element of varying length."""


class GuardedFiles:
    """The HDF5 files of a data set, open until `close`.

    Args:
      folder: the folder with the data set's files.

    Raises:
      CallboardError: the main file is damaged, or none that is read.
      OSError: it cannot be opened.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._parts: dict[str, Any] = {}
        self._main = _opened(folder / MAIN)

    def __enter__(self) -> "GuardedFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for file in (self._main, *self._parts.values()):
            file.close()
        self._parts = {}

    def text(self, name: str) -> str | None:
        """Returns an attribute of the main file that is one text; None if there is none."""
        if name not in self._main.attrs or self._main.attrs.get_id(name).shape != ():
            return None
        value = self._main.attrs[name]
        return value if isinstance(value, str) else None

    @property
    def entries(self) -> int:
        """Number of entries in the main file, which are episodes if it is not damaged."""
        return len(self._main)

    def has_episode(self, index: int) -> bool:
        return bool(self._main.id.links.exists(_name(index)))

    def episode(self, index: int) -> "GuardedEpisode":
        """Returns the arrays of an episode.

        Raises:
          CallboardError: there is none of this number, or it is in another file than a part of the data set.
        """
        from h5py import h5l

        if not self.has_episode(index):
            raise CallboardError(f"{MAIN} does not hold it")
        links, name = self._main.id.links, _name(index)
        kind = links.get_info(name).type
        if kind == h5l.TYPE_HARD:
            return GuardedEpisode(_object(self._main.id, name))
        target = links.get_val(name) if kind == h5l.TYPE_EXTERNAL else (b"", b"")
        part, inner = _PART.fullmatch(target[0]), _IN_PART.fullmatch(target[1])
        if part is None or inner is None:
            raise CallboardError(f"it is a link to something else than {PARTS}/*.hdf5, and is not followed")
        return GuardedEpisode(_object(self._part(part[1].decode()).id, inner[1]))

    def _part(self, name: str) -> Any:
        if name not in self._parts:
            folder = self._folder / PARTS
            if folder.is_symlink():
                raise CallboardError(f"{PARTS} is a symbolic link, and is not followed")
            self._parts[name] = _opened(folder / name)
        return self._parts[name]


class GuardedEpisode:
    """The arrays of an episode, which together may take two gigabytes.

    Args:
      group: the HDF5 object of the episode.
    """

    def __init__(self, group: Any):
        from h5py import h5g

        if not isinstance(group, h5g.GroupID):
            raise CallboardError("it is no group of arrays")
        self._group = group
        self._bytes = 0

    def number(self, name: str) -> int | None:
        """Returns an attribute that is one whole number; None if there is none."""
        from h5py import h5a

        if not h5a.exists(self._group, name.encode()):
            return None
        attribute = h5a.open(self._group, name.encode())
        if attribute.shape != () or attribute.dtype.kind not in "iu":
            return None
        value = np.empty((), attribute.dtype)
        attribute.read(value)
        return int(value)

    def has(self, name: str) -> bool:
        """Returns whether there is an array or a group of this name."""
        return bool(self._group.links.exists(name.encode()))

    def names(self, *path: str) -> list[str]:
        """Returns the names of the arrays and groups in a group."""
        return [name.decode("utf-8", "replace") for name in self._at(path)]

    def array(self, *path: str, itemsize: int = 1) -> "GuardedArray":
        """Returns an array, of which nothing has been read.

        Args:
          path: its names from the episode on.
          itemsize: bytes of an element in the array that is made of it.

        Raises:
          CallboardError: it is missing, is in another file, or has more elements than are stored or can be read.
        """
        from h5py import h5d

        found, where = self._at(path), "/".join(path)
        if not isinstance(found, h5d.DatasetID):
            raise CallboardError(f"{where} is no array")
        array = GuardedArray(found, where)
        self.claim(max(array.nbytes, math.prod(array.shape) * itemsize))
        return array

    def claim(self, nbytes: int) -> None:
        """Counts bytes that reading an array takes."""
        self._bytes += nbytes
        if self._bytes > _MOST_BYTES:
            raise CallboardError(f"its arrays have more than {_MOST_BYTES:,} bytes: divide it into shorter episodes")

    def _at(self, path: tuple[str, ...]) -> Any:
        from h5py import h5g

        found = self._group
        for index, name in enumerate(path):
            if not isinstance(found, h5g.GroupID):
                raise CallboardError(f"{'/'.join(path[:index])} is no group of arrays")
            found = _object(found, name.encode(), "/".join(path[: index + 1]))
        return found


class GuardedArray:
    """An array in a file.

    Args:
      dataset: the HDF5 object.
      where: its path, for messages.

    Raises:
      CallboardError: its elements are in another file or are not stored, or it needs a plug-in.
    """

    def __init__(self, dataset: Any, where: str):
        from h5py import h5d

        self._dataset = dataset
        self.where = where
        self.shape: tuple[int, ...] = dataset.shape or ()
        self.dtype: np.dtype = dataset.dtype
        element = max(dataset.get_type().get_size(), self.dtype.itemsize)
        self.nbytes = math.prod(self.shape) * element
        properties = dataset.get_create_plist()
        layout = properties.get_layout()
        if layout == h5d.VIRTUAL or properties.get_external_count():
            raise CallboardError(f"{where} takes its elements from another file, which is not read")
        filters = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
        both = {_DEFLATE, _LZF} <= set(filters)
        if both or not set(filters) <= set(_COMPRESSION) or len(set(filters)) < len(filters):
            raise CallboardError(f"{where} is compressed with other filters than gzip, shuffle and lzf")
        ratio = math.prod(_COMPRESSION[one] for one in filters)
        chunk = math.prod(properties.get_chunk()) * element if layout == h5d.CHUNKED else 0
        if self.nbytes > ratio * dataset.get_storage_size() or chunk > max(2 * self.nbytes, _CHUNK_BYTES):
            raise CallboardError(f"{where} declares {self.nbytes:,} bytes, which the file does not hold")
        self._chunk = chunk
        if filters and dataset.get_storage_size() * ratio > _UNCHECKED_BYTES:
            self._check_chunks(filters, ratio)

    def _check_chunks(self, filters: Sequence[int], ratio: int) -> None:
        """Raises `CallboardError` if a chunk decompresses to more than was declared, which HDF5 would allocate."""
        chunks: list[Any] = []
        self._dataset.chunk_iter(chunks.append)
        for chunk in chunks:
            most = self._chunk + _CHECKSUM_BYTES
            fits = chunk.size <= 2 * most
            if fits and chunk.size * ratio > _UNCHECKED_BYTES:
                content = self._dataset.read_direct_chunk(chunk.chunk_offset)[1]
                for index, name in reversed(list(enumerate(filters))):
                    if chunk.filter_mask >> index & 1:
                        continue
                    if name == _FLETCHER:
                        content = content[:-_CHECKSUM_BYTES]
                    elif name == _DEFLATE:
                        content = zlib.decompressobj().decompress(content, most + 1)
                fits = len(content) <= most and _LZF not in filters
            if not fits:
                raise CallboardError(f"{self.where} has a chunk that is too large when it is decompressed")

    @property
    def holds_bytes(self) -> bool:
        """Whether each element is an array of bytes, of any length."""
        import h5py

        return bool(h5py.check_vlen_dtype(self.dtype) == np.uint8)

    def read(self) -> np.ndarray:
        """Returns numbers.

        Raises:
          CallboardError: it holds something else.
        """
        import h5py

        if self.dtype.kind not in "biuf":
            raise CallboardError(f"{self.where} holds no numbers, but {self.dtype}")
        array = h5py.Dataset(self._dataset)[()]
        # A file may hold any byte for a bool.
        return array.view(np.uint8) != 0 if self.dtype == np.bool_ and np.ndim(array) else array

    def lengths(self) -> list[int]:
        """Returns the number of bytes of each element of an array `[rows]` of arrays of bytes.

        Raises:
          CallboardError: its references to them are compressed.
        """
        from h5py import h5d, h5i

        dataset, (rows,) = self._dataset, self.shape
        properties = dataset.get_create_plist()
        layout, element = properties.get_layout(), dataset.get_type().get_size()
        if properties.get_nfilters() or layout == h5d.COMPACT or element != _REFERENCE.itemsize:
            raise CallboardError(f"{self.where} is compressed: write pictures, which are compressed already, without")
        if layout == h5d.CHUNKED:
            step = self._chunk // element
            chunks = [dataset.read_direct_chunk((row,))[1] for row in range(0, rows, step)]
            stored = b"".join(chunks)[: self.nbytes]
        else:
            stored = os.pread(h5i.get_file_id(dataset).get_vfd_handle(), self.nbytes, dataset.get_offset())
        return list(np.frombuffer(stored, _REFERENCE)["length"].tolist())

    def rows(self, lengths: Sequence[int]) -> Iterator[np.ndarray]:
        """Yields arrays of bytes one after the other.

        Args:
          lengths: their lengths.

        Raises:
          CallboardError: one has another length.
        """
        import h5py

        dataset = h5py.Dataset(self._dataset)
        for row, length in enumerate(lengths):
            content = dataset[row]
            if len(content) != length:
                raise CallboardError(f"row {row} of {self.where} is damaged")
            yield content


def _name(index: int) -> bytes:
    return f"episode_{index}".encode()


def _opened(path: pathlib.Path) -> Any:
    """Opens a regular file with h5py, by its descriptor, so that no other file takes its place meanwhile."""
    import h5py

    descriptor = open_regular(path)
    try:
        return h5py.File(f"/proc/self/fd/{descriptor}", "r", locking=False)
    finally:
        os.close(descriptor)


def _object(group: Any, name: bytes, where: str = "") -> Any:
    """Opens what a group holds itself, not what it links to."""
    from h5py import h5l, h5o

    shown = where or f"its part {name.decode(errors='replace')!r}"
    if not group.links.exists(name):
        raise CallboardError(f"{shown} is missing")
    if group.links.get_info(name).type != h5l.TYPE_HARD:
        raise CallboardError(f"{shown} is a link, and is not followed")
    return h5o.open(group, name)
