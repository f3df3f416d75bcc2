"""Connection to a Ray cluster, or to a temporary one started on this machine."""

import contextlib
import logging
import os
import pathlib
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import tensorflow as tf  # noqa: F401  Before Ray begins.

from ....errors import CallboardError
from ....messages.install_commands import install_command
from ....runtime.deadlines import wait_until
from ....runtime.descendants import descendants, end_processes, running
from ...processes.temporary_files import removed_afterwards
from .cluster_address import check_address

try:
    import ray
    from ray._private import services
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    from ray.job_config import JobConfig
except ImportError as error:
    raise CallboardError(f"Ray is not installed: {install_command('callboard[ray]')}") from error

_STARTS = 3
_DIAL_SECONDS = 10.0
_OBJECT_STORE_BYTES = 100 * 2**20
END_SECONDS = 30.0
_RAY_PROCESSES = "^ray::|/ray/"


@contextlib.contextmanager
def connected(
    address: str | None, processors: int, leave_if_interrupted: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """Joins a cluster, or starts one here with `processors` logical CPUs, which may exceed the physical count.

    If this process is already connected to a cluster, the connection is kept.  Yields whether the cluster existed
    before.

    Args:
      address: address of the cluster, `auto` for one that runs on this machine, or `local` for a new one; None uses
        RAY_ADDRESS, else a cluster that runs on this machine, else a new one.
      processors: number of logical CPUs of a new cluster.
      leave_if_interrupted: called before each attempt to start a cluster; may raise `KeyboardInterrupt`.

    Raises:
      CallboardError: there is no cluster at the address.
    """
    if ray.is_initialized():
        yield True
        return
    address = address or os.environ.get("RAY_ADDRESS")
    found = find_cluster(address)
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"namespace": "callboard", "log_to_driver": False, "logging_level": "ERROR"}
        if found is None:
            settings.update(
                num_cpus=processors,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=stack.enter_context(_ray_files()),
            )
        elif _takes_own_token(found):
            # Ray itself uses the user's token only for a cluster whose address it was not given.
            logging.getLogger("ray").setLevel(settings["logging_level"])
            maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        _connect(found, settings, leave_if_interrupted)
        stack.callback(ray.shutdown if found is not None else _end_cluster)
        yield found is not None


def _end_cluster() -> None:
    """Ends the cluster that this process has started, with its workers, which Ray itself does not wait for."""
    workers = []
    for process in descendants(os.getpid()):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::"):
                workers.append(process)
    ray.shutdown()
    end_processes(lambda: running(workers))


def find_cluster(address: str | None) -> str | None:
    """Returns the address `host:port` of the cluster to join; None to start one.

    Args:
      address: as in `connected`.

    Raises:
      CallboardError: there is no cluster at the address, or it cannot be joined.
    """
    check_address(address)
    try:
        found = None if address == "local" else services.canonicalize_bootstrap_address(address)
    except ConnectionError as error:
        raise CallboardError(
            "no Ray cluster runs here; start one with `ray start`, or leave --ray-address out"
        ) from error
    except (ValueError, OSError) as error:
        raise CallboardError(
            f"{address!r} is not the address of a Ray cluster; write HOST:PORT, auto or local ({_in_a_line(error)})"
        ) from error
    if found is None:
        return None
    try:
        _check_answers(found)
    except CallboardError:
        if address is not None:
            raise
        return None  # Ray still names a cluster of this machine that was killed.
    _check_files(found)
    return found


def session_directory() -> pathlib.Path:
    """Returns the directory in which the cluster keeps its files on this machine."""
    return pathlib.Path(ray._private.worker.global_worker.node.get_session_dir_path())


def files_were_removed() -> bool:
    """Returns whether the cluster's files on this machine were removed, so that Ray can start no process here.

    Ray's processes make the directory again, but not the socket.
    """
    return not pathlib.Path(ray._private.worker.global_worker.node.raylet_socket_name).exists()


def _check_answers(address: str) -> None:
    """Raises `CallboardError` if nothing listens at the address; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_DIAL_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise CallboardError(
            f"no Ray cluster answers at {address} ({getattr(error, 'strerror', None) or error}); start one there with "
            "`ray start --head`, or give another --ray-address"
        ) from error


def _check_files(address: str) -> None:
    """Raises `CallboardError` if the cluster's files on this machine were removed; Ray itself would abort."""
    sockets = [path for _, path in _raylets(address)]
    if sockets and not any(path.exists() for path in sockets):
        raise CallboardError(
            f"the Ray cluster at {address} cannot be joined, because {sockets[0].parents[1]} was removed; restart the "
            "cluster with `ray stop` and `ray start`, and let nothing remove files there"
        )


def _raylets(address: str) -> list[tuple[psutil.Process, pathlib.Path]]:
    """Returns a cluster's raylets on this machine, and their sockets."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        flags = dict(flag.partition("=")[::2] for flag in process.info["cmdline"] or ())
        if flags.get("--gcs-address") == address and (name := flags.get("--raylet_socket_name")):
            found.append((process, pathlib.Path(name)))
    return found


def _takes_own_token(address: str) -> bool:
    """Returns whether this user runs a cluster on this machine, and its processes tell each other the user's token."""
    for raylet, _ in _raylets(address):
        with contextlib.suppress(psutil.Error):
            if raylet.uids().real == os.getuid() and raylet.environ().get("RAY_AUTH_MODE", "").lower() == "token":
                return True
    return False


def _connect(address: str | None, settings: dict[str, Any], leave_if_interrupted: Callable[[], None]) -> None:
    for attempt in range(_STARTS):
        leave_if_interrupted()
        try:
            with _own_signals():
                ray.init(address or "local", job_config=_closed_path(), **settings)
            return
        except Exception as error:  # Ray raises errors of many types here, including plain `Exception`.
            ray.shutdown()
            # On a busy machine, Ray times out waiting for its own components.
            if address is not None or attempt == _STARTS - 1:
                wish = f"join the Ray cluster at {address}" if address else "start Ray here"
                hint = "" if address is None else "; if it needs a token, set RAY_AUTH_MODE=token"
                raise CallboardError(f"cannot {wish}: {_in_a_line(error)}{hint}") from error
        except BaseException:
            ray.shutdown()
            raise


def _closed_path() -> JobConfig:
    """Returns a configuration with which workers do not search the working directory of this process for libraries.

    Ray puts it first on their path, but not for jobs of its client server, whose directory is of no use to them.
    Modules of the user there are found by `search_working_directory`.
    """
    return JobConfig(_client_job=True)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restores the SIGTERM handler: Ray installs one that ends the process with exit code 15, without any clean-up."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and before is not None:
        signal.signal(signal.SIGTERM, before)


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
def _ray_files() -> Iterator[str]:
    """Creates a directory for a cluster on this machine, and removes it once the cluster's processes have ended."""
    # Directly below /tmp, because a socket path is limited to 107 characters and Ray's own part takes most of them.
    path = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    # If this process were killed, two of Ray's agent processes would continue to run and write there.
    with removed_afterwards(pathlib.Path(path), processes=_RAY_PROCESSES):
        try:
            # One below, because Ray gives its own directory, and most in it, to all users (0777).
            yield f"{path}/r"
        finally:

            def is_used() -> bool:
                # The process that removes the directory has its name too, but no path below it.
                processes = psutil.process_iter(["cmdline"])
                return any(f"{path}/" in " ".join(process.info["cmdline"] or ()) for process in processes)

            wait_until(lambda: not is_used(), END_SECONDS)
