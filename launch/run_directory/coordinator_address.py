"""Where the coordinator of a run listens, in a file of the run directory that exists during the run."""

import ipaddress
import json
import logging
import os
import pathlib
import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from ...files.atomic_files import write_file
from ...files.guarded_files import read_json

_NAME = re.compile(r"[\w.:%-]{1,255}", re.ASCII)
"""Of a machine, or its address."""


class CoordinatorAddress(NamedTuple):
    """How `callboard top` reaches the coordinator."""

    host: str
    """Name of its machine."""
    ip: str
    """Address of its machine, for other machines."""
    process: int
    port: int | None
    """Port of its Courier server; None if there is only the socket file (`--launcher inline`)."""

    @classmethod
    def here(cls, port: int | None) -> "CoordinatorAddress":
        """Returns the address of a coordinator in this process."""
        return cls(socket.gethostname(), _own_ip(), os.getpid(), port)

    @property
    def is_here(self) -> bool:
        """Whether the coordinator runs on this machine."""
        return self.host == socket.gethostname()

    def for_client(self) -> str:
        """Returns `host:port` as seen from this machine."""
        return f"{'localhost' if self.is_here else self.ip}:{self.port}"


def announce(path: pathlib.Path, port: int | None) -> None:
    """Writes the address of a coordinator in this process; a disk that is full is only logged."""
    try:
        write_address(path, CoordinatorAddress.here(port))
    except OSError as error:
        logging.warning("%s was not written: %s", path.name, error)


def write_address(path: pathlib.Path, address: CoordinatorAddress) -> None:
    """Replaces the file.

    Raises:
      OSError: it cannot be written.
    """
    write_file(path, json.dumps(address._asdict()))


def read_address(path: pathlib.Path) -> CoordinatorAddress | None:
    """Returns the address in a file; None if there is none, or no valid one."""
    try:
        found = read_json(path)
        host, ip, process, port = (found[name] for name in CoordinatorAddress._fields)
        if not _NAME.fullmatch(host) or not _NAME.fullmatch(ip):
            return None  # It is shown to the user.
        return CoordinatorAddress(host, ip, int(process), None if port is None else int(port))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _own_ip() -> str:
    """Returns the address with which this machine reaches others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return next(_interface_ips(), "127.0.0.1")


def _interface_ips() -> Iterator[str]:
    """Yields the addresses of this machine in its own networks, where none leads to all others."""
    states = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        for found in addresses:
            is_up = name in states and states[name].isup
            if is_up and found.family == socket.AF_INET and not ipaddress.ip_address(found.address).is_loopback:
                yield found.address
