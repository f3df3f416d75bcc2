"""Ensures that only one run at a time uses a run directory.

Local directories are protected by a kernel lock on a file in the directory.  The kernel releases it with the last
process that holds it, so the remains of a killed run block no other run.  On a file system shared by several hosts it
works between hosts as far as `flock` does there (NFS from version 4 on, Lustre mounted with `flock`, CephFS).  A
directory at a URL has a lease instead, which the driver renews.
"""

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import pathlib
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import psutil

from ...errors import CallboardError
from ...files.guarded_files import open_regular, parse_json
from ...runtime.deadlines import Deadline
from .remote_storage import Storage

_REMAINS_SECONDS = 15.0
"""Time within which the processes of a killed launcher must have ended."""
_RENEW_SECONDS = 5.0
_SILENT_SECONDS = 20.0
_SETTLE_SECONDS = 1.0
_POLL_SECONDS = 0.2
_LEASE = "lock"
_HOLDER_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Holder:
    """The process that runs in a directory."""

    host: str
    pid: int
    begun: float
    """Start time of the process in seconds since 1970, because process ids are reused."""
    what: str
    """The holder of the lock, such as `--launcher threads`."""
    token: str = ""
    """Id of a lease, different for every start."""
    renewals: int = 0

    @classmethod
    def me(cls, what: str, token: str = "") -> "Holder":
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), what, token)

    @classmethod
    def read(cls, content: bytes) -> "Holder | None":
        """Parses the output of `write`; returns None if `content` is something else."""
        try:
            return cls(**parse_json(content))
        except (ValueError, TypeError):
            return None

    def write(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    def has_died(self) -> bool:
        """Returns whether the holder was a process of this host that has ended; False if that cannot be determined."""
        if self.host != socket.gethostname():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.begun) > 1.0
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.what})"


@contextlib.contextmanager
def run_lock(path: pathlib.Path, what: str) -> Iterator[int]:
    """Locks a run directory; yields the descriptor of the lock, which other processes may inherit and hold.

    Makes the directory if it does not exist, and removes it at the end if it is still empty.

    Args:
      path: path of the lock file.
      what: what runs there, such as `--launcher threads`, for the error message that a second run gets.

    Raises:
      CallboardError: the directory cannot be written, or another process runs there.
    """
    directory = path.parent
    made = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _lock(path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, Holder.me(what).write(), 0)
    except OSError as error:
        raise CallboardError(
            f"the run directory {directory} cannot be written ({error.strerror}); name another one with --run-dir"
        ) from error
    try:
        yield descriptor
    finally:
        # A file system that has become read-only must not hide how the run ended.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(descriptor)
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()


def hold_as_remains(path: pathlib.Path) -> bool:
    """Takes the lock of a launcher that was killed, until this process ends: a new start then waits for that.

    Args:
      path: path of the lock file.

    Returns:
      Whether it was taken; False if there is no such file, or if another process has locked it.
    """
    try:
        descriptor = open_regular(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def check_not_running(path: pathlib.Path) -> None:
    """Rejects a directory in which another process runs, without waiting and without writing anything.

    Args:
      path: path of the lock file.

    Raises:
      CallboardError: another process runs there.
    """
    try:
        with open(open_regular(path), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = Holder.read(file.read(_HOLDER_BYTES))
                if holder is not None and holder.pid != os.getpid() and not holder.has_died():
                    raise CallboardError(_refusal(path.parent, holder)) from None
    except OSError:
        return  # There is no lock file, or the file system has no locks.


def is_locked(path: pathlib.Path) -> bool:
    """Returns whether another process runs in the directory of a lock file, see `check_not_running`."""
    try:
        check_not_running(path)
    except CallboardError:
        return True
    return False


def _lock(path: pathlib.Path) -> int:
    deadline = Deadline(_REMAINS_SECONDS)
    while True:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = Holder.read(os.pread(descriptor, _HOLDER_BYTES, 0))
            os.close(descriptor)
            if holder is not None and not holder.has_died():
                raise CallboardError(_refusal(path.parent, holder)) from None
            if deadline.has_passed:
                raise CallboardError(
                    f"something still runs in {path.parent}, left by {holder or 'another process'}; end it first"
                ) from None
            time.sleep(_POLL_SECONDS)
            continue
        except OSError as error:
            logging.warning("%s cannot be locked (%s): take care that no second run starts there", path, error.strerror)
        # The previous holder may have removed the file after it was opened here.
        if _is_same(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_same(descriptor: int, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _refusal(directory: object, holder: Holder) -> str:
    return f"a run is active in {directory}, by {holder}; end it first, or name another directory"


@contextlib.contextmanager
def run_lease(storage: Storage, what: str, notify: Callable[[str], None] = logging.warning) -> Iterator[None]:
    """Keeps other runs out of a directory at a URL, by a lease file there that is renewed continuously.

    Args:
      storage: the directory.
      what: what runs there, such as `--launcher threads`, for the error message that a second run gets.
      notify: receives a line if a lease that is no longer renewed is taken over.

    Raises:
      CallboardError: another process runs there.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-lease-") as scratch:
        lease = _Lease(storage, Holder.me(what, uuid.uuid4().hex), pathlib.Path(scratch))
        former = lease.holder()
        if former is not None and not former.has_died():
            _wait_for_silence(lease, former)
            notify(f"{storage.url}: its lock is no longer renewed by {former}, and is taken over")
        lease.renew()
        time.sleep(_SETTLE_SECONDS if former is None else 0.0)
        now = lease.holder()
        if now is not None and now.token != lease.own.token:
            raise CallboardError(_refusal(storage.url, now))
        ended = threading.Event()
        thread = threading.Thread(target=lease.renew_until, args=(ended,), name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            lease.give_up()


class _Lease:
    """The file of a lease, and a local directory to prepare it in."""

    def __init__(self, storage: Storage, own: Holder, scratch: pathlib.Path):
        self.storage = storage
        self.own = own
        self._scratch = scratch

    def holder(self) -> Holder | None:
        if not self.storage.fetch(_LEASE, self._scratch):
            return None
        return Holder.read((self._scratch / _LEASE).read_bytes())

    def renew(self) -> None:
        self.own = dataclasses.replace(self.own, renewals=self.own.renewals + 1)
        (self._scratch / _LEASE).write_bytes(self.own.write())
        self.storage.store(_LEASE, self._scratch)

    def renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEW_SECONDS):
            try:
                self.renew()
            except Exception as error:  # Each storage backend raises its own errors.
                logging.warning("the lock at %s could not be renewed: %s", self.storage.url, error)

    def give_up(self) -> None:
        try:
            self.storage.remove(_LEASE)
        except Exception as error:
            logging.warning("the lock at %s could not be removed: %s", self.storage.url, error)


def _wait_for_silence(lease: _Lease, former: Holder) -> None:
    """Waits until a lease has not been renewed for a while; the clocks of other hosts are not trusted."""
    if former.host == lease.own.host:
        raise CallboardError(_refusal(lease.storage.url, former))
    deadline = Deadline(_SILENT_SECONDS)
    while not deadline.has_passed:
        time.sleep(_SETTLE_SECONDS)
        if (now := lease.holder()) is None:
            return
        if now != former:
            raise CallboardError(_refusal(lease.storage.url, now))
