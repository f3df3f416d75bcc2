"""One run at a time in a directory, and nothing that a run has left behind blocks the next one."""

import contextlib
import dataclasses
import errno
import fcntl
import os
import pathlib
import re
import socket
import subprocess
import threading

import psutil
import pytest

from callboard.errors import CallboardError
from callboard.launch.run_directory import run_lock as module
from callboard.launch.run_directory.remote_storage import Storage
from callboard.launch.run_directory.run_lock import Holder, check_not_running, hold_as_remains, run_lease, run_lock

REFUSAL = f"a run is active in .*, by process {os.getpid()} on {re.escape(socket.gethostname())}"


@pytest.fixture
def dead():
    """The holder of a lock that has died on this host."""
    process = subprocess.Popen(["true"])
    process.wait()
    return dataclasses.replace(Holder.me("--launcher processes"), pid=process.pid)


def test_a_second_run_is_refused_by_name_and_the_first_leaves_nothing(tmp_path):
    path = tmp_path / "runs" / "new" / "lock"
    with run_lock(path, "--launcher processes"):
        for what in ("--launcher processes", "a series of runs"):
            with pytest.raises(CallboardError, match=rf"{REFUSAL} \(--launcher processes\); end it first"):
                with run_lock(path, what):
                    pass
    assert list(tmp_path.iterdir()) == []
    with run_lock(path, "--launcher processes"):
        (path.parent / "experiment.yaml").touch()
    assert [file.name for file in path.parent.iterdir()] == ["experiment.yaml"]


def test_the_file_of_a_run_that_was_killed_does_not_block(tmp_path, dead):
    path = tmp_path / "lock"
    for content in (dead.write(), Holder.me("--launcher processes").write(), b"", b"{}", b"\0\0"):
        path.write_bytes(content)
        with run_lock(path, "--launcher threads"):
            assert Holder.read(path.read_bytes()).what == "--launcher threads"


def test_what_is_left_of_a_run_that_was_killed_is_waited_for(tmp_path, dead, monkeypatch):
    path = tmp_path / "lock"
    path.write_bytes(dead.write())
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # It holds the lock as long as it runs.
    left = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
    os.close(descriptor)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_REMAINS_SECONDS", 0.1)
        with pytest.raises(CallboardError, match=f"something still runs in .*, left by process {dead.pid} on"):
            with run_lock(path, "--launcher processes"):
                pass
    threading.Timer(0.3, left.stdin.close).start()
    with run_lock(path, "--launcher processes"):
        assert left.wait() == 0


def test_nodes_that_outlive_their_launcher_are_waited_for(tmp_path, dead, monkeypatch):
    path = tmp_path / "lock"
    assert not hold_as_remains(path)
    path.write_bytes(dead.write())
    assert hold_as_remains(path) and not hold_as_remains(path)
    monkeypatch.setattr(module, "_REMAINS_SECONDS", 0.1)
    with pytest.raises(CallboardError, match=f"something still runs in .*, left by process {dead.pid} on"):
        with run_lock(path, "--launcher processes"):
            pass
    (held,) = [file.fd for file in psutil.Process().open_files() if file.path == str(path)]
    os.close(held)
    with run_lock(path, "--launcher processes"):
        pass


def test_a_directory_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CallboardError, match=r"file/run cannot be written \(Not a directory\); name another one"):
        with run_lock(tmp_path / "file" / "run" / "lock", "--launcher processes"):
            pass


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.05)
    monkeypatch.setattr(module, "_SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.6)
    (tmp_path / "run").mkdir()
    return Storage(f"file://{tmp_path}/run")


def test_a_file_system_that_became_read_only_does_not_hide_how_a_run_ended(tmp_path, monkeypatch):
    def unlink(path, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with pytest.raises(ValueError, match="the end of the run"), run_lock(tmp_path / "lock", "--launcher processes"):
        monkeypatch.setattr(pathlib.Path, "unlink", unlink)
        raise ValueError("the end of the run")


@contextlib.contextmanager
def other_host(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "elsewhere")
        yield


def test_a_second_run_at_a_url_is_refused_by_name(storage, tmp_path, monkeypatch):
    with run_lease(storage, "--launcher ray"):
        with pytest.raises(CallboardError, match=rf"{REFUSAL} \(--launcher ray\)"):
            with run_lease(storage, "--launcher ray"):
                pass
    assert list((tmp_path / "run").iterdir()) == []
    with other_host(monkeypatch):
        lease = run_lease(storage, "--launcher ray")
        lease.__enter__()
    with pytest.raises(CallboardError, match=r"by process \d+ on elsewhere"):
        with run_lease(storage, "--launcher ray"):
            pass
    lease.__exit__(None, None, None)
    with run_lease(storage, "--launcher ray"):
        pass


def test_a_lease_that_is_no_longer_renewed_is_taken_over(storage, tmp_path, monkeypatch, dead):
    said = []
    with other_host(monkeypatch):
        silent = Holder.me("--launcher ray", "token")
    for former in (silent, dead):
        (tmp_path / "run" / "lock").write_bytes(former.write())
        with run_lease(storage, "--launcher ray", said.append):
            assert Holder.read((tmp_path / "run" / "lock").read_bytes()).pid == os.getpid()
    assert len(said) == 1 and "on elsewhere (--launcher ray), and is taken over" in said[0]


def test_a_lock_that_is_a_link_or_a_pipe_overwrites_nothing_and_is_not_waited_for(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "lock").symlink_to(victim)
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "lock")
    for name, problem in (("linked", "is a symbolic link"), ("piped", "is no regular file")):
        path = tmp_path / name / "lock"
        check_not_running(path)
        assert not hold_as_remains(path)
        with pytest.raises(CallboardError, match=rf"^the run directory .* cannot be written \(lock {problem}\); name"):
            with run_lock(path, "--launcher inline"):
                pass
        assert os.path.lexists(path)
    assert victim.read_text() == "precious"
