"""The memory that may be used: that of the machine, and the limits of this process and of its control groups."""

import pathlib
import resource
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CallboardError

_V2 = (("memory.max", "memory.current", "inactive_file"), ("memory.high", "memory.current", "inactive_file"))
_V1 = (("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),)
"""Files of a limit and of the use, and the line of `memory.stat` with the part that the kernel can take back."""
_LEAST_MARGIN = 256 * 2**20
_LARGEST_MARGIN = 4 * 2**30
_LEAST_ADDRESSES = 11 * 2**28
"""Bytes of addresses with which the smallest run begins; with less TensorFlow aborts, or Reverb waits for ever."""


class MemoryUse(NamedTuple):
    """How much of a limit is in use."""

    name: str
    """The name of the limit, in words."""
    used: int
    """Bytes in use, without files that the kernel only keeps for later."""
    limit: int

    @property
    def room(self) -> int:
        """Bytes that are left until the limit is near; negative once it is.

        It is near with a tenth of it left, or 4 GiB if that is less; of a small limit 256 MiB, or a quarter.
        """
        margin = max(min(self.limit // 10, _LARGEST_MARGIN), min(self.limit // 4, _LEAST_MARGIN))
        return self.limit - self.used - margin


class MemoryLimits:
    """The limits of memory that apply to this process.

    Args:
      root: the directory with `proc` and the mounted control groups; another one in tests.
    """

    def __init__(self, root: pathlib.Path = pathlib.Path("/")):
        self._root = root
        self._groups = list(_groups(root))

    def tightest(self) -> MemoryUse | None:
        """Returns the limit with the least room; None if nothing can be read."""
        machine = self._machine()
        uses = [use for group in self._groups for use in group.uses() if machine is None or use.limit < machine.limit]
        return min([*uses, *([machine] if machine else [])], key=lambda use: use.room, default=None)

    def _machine(self) -> MemoryUse | None:
        values = _numbers(self._root / "proc/meminfo")
        if not {"MemTotal:", "MemAvailable:"} <= values.keys():
            return None
        total = values["MemTotal:"] * 1024
        return MemoryUse("the machine's memory", total - values["MemAvailable:"] * 1024, total)


class _Group(NamedTuple):
    """A control group: its directory, its name, and the names of its files."""

    directory: pathlib.Path
    name: str
    files: tuple[tuple[str, str, str], ...]

    def uses(self) -> Iterator[MemoryUse]:
        for limit_file, used_file, reclaimable in self.files:
            limit, used = _number(self.directory / limit_file), _number(self.directory / used_file)
            if limit is not None and used is not None:
                kept = _numbers(self.directory / "memory.stat").get(reclaimable, 0)
                yield MemoryUse(f"{limit_file} of the control group {self.name}", max(0, used - kept), limit)


def check_addresses() -> None:
    """Rejects a limit of this process's addresses with which no run can work.

    Raises:
      CallboardError: names the limit.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESSES:
        raise CallboardError(
            f"`ulimit -v` leaves this process {limit / 2**30:.2f} GiB of addresses, and the smallest run needs "
            f"{_LEAST_ADDRESSES / 2**30:.2f}, though it uses less memory: raise that limit"
        )


def _groups(root: pathlib.Path) -> Iterator[_Group]:
    """Yields the control groups of this process that may limit memory, and those around them."""
    mounts = list(_mounts(root))
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_v2 = number == "0" and not controllers
        if not is_v2 and "memory" not in controllers.split(","):
            continue
        for mounted_v2, of, at in mounts:
            if mounted_v2 == is_v2:
                # In a container, the path may be one of the host, of which only the end, or nothing, is mounted.
                inside = path.removeprefix(of) if of != "/" else path
                parts = [part for part in inside.split("/") if part not in ("", "..")]
                for count in range(len(parts), -1, -1):
                    directory = root.joinpath(at.lstrip("/"), *parts[:count])
                    yield _Group(directory, "/" + "/".join(parts[:count]), _V2 if is_v2 else _V1)


def _mounts(root: pathlib.Path) -> Iterator[tuple[bool, str, str]]:
    """Yields whether a mount has groups of version 2, the group that is its root, and where it is."""
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            yield True, fields[3], fields[4]
        elif kind[0] == "cgroup" and "memory" in kind[-1].split(","):
            yield False, fields[3], fields[4]


def _lines(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []


def _number(path: pathlib.Path) -> int | None:
    """Returns the number in a file; None if it has another content, such as `max`."""
    text = "".join(_lines(path)[:1]).strip()
    return int(text) if text.isdecimal() else None


def _numbers(path: pathlib.Path) -> dict[str, int]:
    """Returns the numbers of a file with lines of a name and a number."""
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdecimal()}
