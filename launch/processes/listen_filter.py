"""Keeps other machines away from the ports of a run: a packet filter on each listening socket.

Courier, Reverb and TensorFlow listen on all interfaces, without passwords.  So every process attaches a classic BPF
filter (`SO_ATTACH_FILTER`, see socket(7)) to its own listening sockets.  It drops every packet that neither came over
the loopback interface, as all packets from this machine do, nor has the address of another host of the run as its
source.  The connections that a socket accepts inherit its filter; those that it has accepted before, and those that
wait to be accepted, get it within a second.  This needs no privileges and no firewall.
"""

import ctypes
import errno
import ipaddress
import logging
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Collection, Iterator, Sequence

_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog
_LOAD_WORD, _LOAD_BYTE, _SHIFT_RIGHT, _JUMP_EQUAL, _JUMP, _RETURN = 0x20, 0x30, 0x74, 0x15, 0x05, 0x06
_NETWORK_HEADER = -0x100000  # SKF_NET_OFF
_INTERFACE = -0x1000 + 8  # SKF_AD_OFF + SKF_AD_IFINDEX
_LOOPBACK_INTERFACE = 1  # In every network namespace.
_VERSION_4, _SOURCE_4, _SOURCE_6 = 4, _NETWORK_HEADER + 12, _NETWORK_HEADER + 8
_WHOLE_PACKET = 0xFFFFFFFF
_MOST_INSTRUCTIONS = 4096
_POLL_SECONDS = 0.01
_SLOW_POLL_SECONDS = 0.2
_WATCH_SECONDS = 600.0
"""Time after which a port that is not open yet is looked for less often."""
_AGAIN_SECONDS = (0.01, 0.1, 1.0)
"""When connections are looked for that were made before the filter, and accepted after it."""
_LOOK_UP_SECONDS = 10.0


class PortGuard:
    """Closes ports of this process to other machines.

    Args:
      hosts: addresses or names of machines whose packets are accepted, besides those of this one; None for all
        machines.  Names are looked up again from time to time: a machine may get another address, or start later.
    """

    def __init__(self, hosts: Sequence[str] | None = ()):
        self._lock = threading.Lock()
        self._ports: set[int] = set()
        self._hosts: Sequence[str] | None = ()
        self._addresses: list[str] = []
        self._looks_up = False
        self.allow(hosts)

    def close(self, port: int) -> None:
        """Closes a port on which this process listens."""
        with self._lock:
            self._ports.add(port)
            self._close([port])
        threading.Thread(target=self._close_again, args=([port],), name="listen-filter-again", daemon=True).start()

    def close_when_open(self, ports: Collection[int], stop: threading.Event) -> None:
        """Closes ports, in the background, as soon as this process listens on them.

        It is for servers that other code starts.

        Args:
          ports: the ports.
          stop: ends the watch.
        """
        left = set(ports)

        def watch() -> None:
            slow = time.monotonic() + _WATCH_SECONDS
            while left and not stop.wait(_POLL_SECONDS if time.monotonic() < slow else _SLOW_POLL_SECONDS):
                with self._lock:
                    found = self._close(left)
                    left.difference_update(found)
                    self._ports.update(found)
                if found:
                    threading.Thread(target=self._close_again, args=(found,), daemon=True).start()

        if left:
            threading.Thread(target=watch, name="listen-filter", daemon=True).start()

    def allow(self, hosts: Sequence[str] | None) -> None:
        """Accepts packets from these machines from now on, also at ports that were closed before."""
        with self._lock:
            if hosts == self._hosts:
                return
            self._hosts = hosts
            self._addresses = resolved(hosts or ())
            self._close(self._ports)
            if not self._looks_up and any(not _is_address(host) for host in hosts or ()):
                self._looks_up = True
                threading.Thread(target=self._look_up, name="listen-filter-names", daemon=True).start()

    def _close_again(self, ports: Collection[int]) -> None:
        for seconds in _AGAIN_SECONDS:
            time.sleep(seconds)
            with self._lock:
                self._close(ports)

    def _look_up(self) -> None:
        while True:
            time.sleep(_LOOK_UP_SECONDS)
            hosts = self._hosts
            addresses = resolved(hosts or ())
            with self._lock:
                if hosts is self._hosts and addresses != self._addresses:
                    self._addresses = addresses
                    self._close(self._ports)

    def _close(self, ports: Collection[int]) -> set[int]:
        """Closes those of the ports that are open; returns them."""
        if self._hosts is None or not ports:
            return set(ports)
        try:
            return _attach(ports, filter_program(self._addresses))
        except OSError as error:
            # The coordinator notifies the user, see `refusal`.
            logging.warning("the ports %s cannot be closed to other machines: %s", sorted(ports), error)
            return set(ports)
        except TooManyHosts as error:
            logging.warning("%s; the ports %s accept only this machine", error, sorted(ports))
            return _attach(ports, filter_program())


class TooManyHosts(ValueError):
    """A filter has no room for all hosts."""


def resolved(hosts: Sequence[str]) -> list[str]:
    """Returns the IP addresses of machines; those of names that cannot be looked up are left out."""
    found: set[str] = set()
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
        except OSError:
            continue
        found.update(str(answer[4][0]).partition("%")[0] for answer in answers)
    return sorted(found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def refusal() -> str:
    """Returns why the kernel refuses such filters; empty if it accepts them."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
            probe.listen()
            _set_filter(probe, filter_program())
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
    return ""


def filter_program(hosts: Sequence[str] = ()) -> bytes:
    """Returns a filter that accepts packets from this machine and from hosts, as the kernel reads it.

    Raises:
      TooManyHosts: there is room for about 2,000 addresses of IPv4, or 450 of IPv6.
      ValueError: an address is not one.
    """
    addresses = [ipaddress.ip_address(host) for host in dict.fromkeys(hosts)]
    version_4 = [address for address in addresses if address.version == _VERSION_4]
    version_6 = [address for address in addresses if address.version != _VERSION_4]
    of_version_4 = [_LOADS_SOURCE_4, *(_accept_equal(int(address)) for address in version_4), _instruction(_RETURN, 0)]
    of_version_6 = [*(_accept_version_6(address.packed) for address in version_6), _instruction(_RETURN, 0)]
    length_4 = sum(map(len, of_version_4)) // _INSTRUCTION.size
    program = b"".join(
        [
            _instruction(_LOAD_WORD, _INTERFACE),
            _accept_equal(_LOOPBACK_INTERFACE),
            _instruction(_LOAD_BYTE, _NETWORK_HEADER),
            _instruction(_SHIFT_RIGHT, 4),
            _instruction(_JUMP_EQUAL, _VERSION_4, 1, 0),
            _instruction(_JUMP, length_4),
            *of_version_4,
            *of_version_6,
        ]
    )
    if len(program) > _MOST_INSTRUCTIONS * _INSTRUCTION.size:
        raise TooManyHosts(f"a packet filter has no room for {len(addresses)} hosts")
    return program


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, value & 0xFFFFFFFF)


_LOADS_SOURCE_4 = _instruction(_LOAD_WORD, _SOURCE_4)


def _accept_equal(value: int) -> bytes:
    return _instruction(_JUMP_EQUAL, value, 0, 1) + _instruction(_RETURN, _WHOLE_PACKET)


def _accept_version_6(packed: bytes) -> bytes:
    code, words = b"", struct.unpack("!4I", packed)
    for index, word in enumerate(words):
        # What follows for this address: two instructions for each of the other words, and the last one.
        rest = 2 * (len(words) - 1 - index) + 1
        code += _instruction(_LOAD_WORD, _SOURCE_6 + 4 * index) + _instruction(_JUMP_EQUAL, word, 0, rest)
    return code + _instruction(_RETURN, _WHOLE_PACKET)


def _attach(ports: Collection[int], program: bytes) -> set[int]:
    """Attaches a filter to this process's sockets that listen on these ports, and to their connections.

    Returns:
      The ports on which it listens.
    """
    found = set()
    for server, port in _sockets():
        if port in ports:
            _set_filter(server, program)
            if _listens(server):
                found.add(port)
    return found


def _sockets() -> Iterator[tuple[socket.socket, int]]:
    """Yields a duplicate of each TCP socket of this process, with its own port."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # It was closed in the meantime.
        with duplicate:
            if duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.type == socket.SOCK_STREAM:
                yield duplicate, duplicate.getsockname()[1]


def _listens(candidate: socket.socket) -> bool:
    try:
        return bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as error:
        if error.errno in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            return False
        raise


def _set_filter(listener: socket.socket, program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    pointer = _PROGRAM.pack(len(program) // _INSTRUCTION.size, ctypes.addressof(buffer))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
