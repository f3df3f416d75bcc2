"""The forkserver, without TensorFlow: what it starts, and that nothing of it is left however it ends."""

import errno
import multiprocessing
import os
import select
import signal
import sys
import threading
import time

import forked_functions
import psutil
import pytest

from callboard.launch.launchers.node_processes.forkserver import ForkServer, wait_for_any


@pytest.fixture
def server():
    server = ForkServer(preload="json")
    yield server
    server.stop()


def test_a_function_runs_in_a_session_of_its_own_and_its_exit_code_is_known(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/nowhere")
    for code in (0, 7):
        process = server.fork(forked_functions.answer, "x" * 1_000_000)
        word, pid, session, directory, path = process.pipe.recv()
        assert len(word) == 1_000_000
        assert pid == process.pid == session
        assert (directory, path) == (str(tmp_path), sys.path)
        assert not process.join(0.0)
        process.pipe.send(code)
        assert process.join(10.0) and process.exitcode == code
    process = server.fork(forked_functions.answer, "x")
    process.kill()
    assert process.join(10.0) and process.exitcode == -signal.SIGKILL


@pytest.mark.slow
def test_a_forkserver_that_is_stopped_is_noticed_and_replaced(server):
    process = server.fork(forked_functions.answer, "x")
    process.pipe.recv()
    ping = server.ping()
    assert select.select([ping], [], [], 10.0)[0]
    os.close(ping)
    stopped = server._process.pid
    os.kill(stopped, signal.SIGSTOP)
    ping = server.ping()
    assert not select.select([ping], [], [], 0.3)[0]
    forked = []
    fork = threading.Thread(target=lambda: forked.append(server.fork(forked_functions.answer, "y")))
    fork.start()
    time.sleep(0.1)
    process.kill()
    assert not process.join(0.3)
    server.kill()
    assert process.join(10.0) and process.exitcode is None
    fork.join(10.0)
    assert forked[0].pipe.recv()[0] == "y" and server._process.pid != stopped
    assert select.select([ping], [], [], 10.0)[0]
    os.close(ping)
    forked[0].pipe.send(0)
    assert forked[0].join(10.0)


def test_the_end_of_a_process_is_seen_without_the_forkserver(server, monkeypatch):
    monkeypatch.setattr("callboard.launch.launchers.node_processes.forkserver._ZOMBIE_SECONDS", 0.1)
    process = server.fork(forked_functions.answer, "x")
    process.pipe.recv()
    os.kill(server._process.pid, signal.SIGSTOP)
    process.kill()
    assert process.join(20.0)
    server.kill()


def test_a_process_is_waited_for_and_killed_without_a_free_descriptor(server, monkeypatch):
    process = server.fork(forked_functions.answer, "x")
    process.pipe.recv()

    def fails(process):
        raise OSError(errno.EMFILE, "Too many open files")

    for method in ("status", "kill"):
        monkeypatch.setattr(psutil.Process, method, fails)
    assert not process.join(0.3)
    process.kill()
    assert process.join(10.0)


def test_a_forkserver_that_dies_is_started_again(server):
    process = server.fork(forked_functions.answer, "x")
    process.pipe.recv()
    dead = server._process
    dead.kill()
    dead.wait()
    again = server.fork(forked_functions.answer, "y")
    assert again.pipe.recv()[0] == "y"
    assert not process.join(0.1) and wait_for_any(process) == []
    process.kill()
    assert process.join(10.0) and process.exitcode is None
    again.pipe.send(0)
    assert again.join(10.0) and again.exitcode == 0


def test_a_held_file_is_open_until_the_last_process_has_ended(server):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with server.holding(writer):
        process = server.fork(forked_functions.answer, "x")
        process.pipe.recv()
        os.close(writer)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        server.stop()
        assert os.read(reader, 1) == b""


def test_a_node_passes_signals_on_and_leaves_none_of_it_to_what_it_starts(server):
    process = server.fork(forked_functions.report_signals)
    started, forked = process.pipe.recv()
    assert started == "[False, False, False]"
    assert forked == "[True, True, False]"
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.killpg(process.pid, number)
        assert process.pipe.recv() == number
    # The forkserver ignores them.
    os.kill(server._process.pid, signal.SIGTERM)
    assert server.fork(forked_functions.answer, "x").pipe.recv()[0] == "x"


def test_a_fork_of_this_process_does_not_keep_it_running(server, monkeypatch):
    monkeypatch.setattr("callboard.launch.launchers.node_processes.forkserver._forkserver", server)
    server.fork(forked_functions.answer, "x").kill()
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    forkserver = server._process
    server.stop()
    child.kill()
    child.join()
    assert forkserver.returncode == 0
