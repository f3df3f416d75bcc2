"""The connection to a Ray cluster: addresses where there is none; `test_launcher.py` connects to real clusters."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import psutil
import pytest
import ray
from ray._private import services
from ray_clusters import autoscaling_cluster

from callboard.errors import CallboardError
from callboard.launch.launchers.ray.connection import (
    END_SECONDS,
    _check_files,
    _end_cluster,
    _ray_files,
    connected,
    find_cluster,
    session_directory,
)
from callboard.runtime.descendants import running


@pytest.fixture
def closed():
    """A port of this machine on which no program listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def refusal(address):
    with pytest.raises(CallboardError) as raised, connected(address, 1):
        pass
    assert not ray.is_initialized()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_an_address_where_no_cluster_answers_is_refused_at_once(closed):
    # Ray names the machine by another address than 127.0.0.1.
    assert re.fullmatch(
        rf"no Ray cluster answers at \S+:{closed} \(Connection refused\); start one there with `ray start --head`, or "
        "give another --ray-address",
        refusal(f"127.0.0.1:{closed}"),
    )


def test_the_address_may_come_from_the_environment(closed, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed}")
    assert f":{closed} (Connection refused)" in refusal(None)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert "not reach it through ray://head:10001" in refusal(None)


def test_a_given_address_has_precedence_over_the_environment(closed, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert f":{closed} (Connection refused)" in refusal(f"127.0.0.1:{closed}")


def test_a_port_that_does_not_exist_is_refused():
    assert ":99999" in refusal("127.0.0.1:99999")


def test_a_cluster_whose_files_were_removed_is_refused(tmp_path):
    (tmp_path / "sockets").mkdir()
    with socket.create_server(("", 0)) as server:
        address = services.canonicalize_bootstrap_address(f"127.0.0.1:{server.getsockname()[1]}")
        flags = [f"--raylet_socket_name={tmp_path}/sockets/raylet", f"--gcs-address={address}"]
        # Has the flags of the process that Ray would reach.
        process = subprocess.Popen([sys.executable, "-c", "input()", *flags], stdin=subprocess.PIPE)
        try:
            line = refusal(address)
            assert line.startswith(f"the Ray cluster at {address} cannot be joined, because {tmp_path} was removed;")
            (tmp_path / "sockets" / "raylet").touch()
            _check_files(address)
        finally:
            process.communicate(b"\n", timeout=30)


def test_the_end_waits_for_the_processes_of_the_cluster_and_for_nothing_else():
    began = time.monotonic()
    with _ray_files() as path:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)", f"--log_dir={path}/logs"])
        assert process.poll() is None
    ended = time.monotonic()
    assert process.poll() is not None
    assert ended - began < END_SECONDS
    assert not pathlib.Path(path).exists()


def test_a_cluster_that_was_killed_is_not_joined_unless_it_was_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    assert find_cluster(None) is None
    for address in ("auto", "127.0.0.1:1"):
        with pytest.raises(CallboardError, match="no Ray cluster"):
            find_cluster(address)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_reaches_none_of_the_files_of_a_cluster():
    def become_another():
        os.setgid(1001)
        os.setuid(1001)

    with connected("local", 1):
        session = session_directory()
        places = [session.parents[1], session.parent, session, session / "sockets", session / "logs"]
        assert all(place.is_dir() for place in places)
        for place in places:
            for test in ("-r", "-w", "-x"):
                done = subprocess.run(["test", test, place], preexec_fn=become_another)
                assert done.returncode, (place, test)


@pytest.mark.slow
def test_a_worker_has_ended_with_its_cluster_although_ray_does_not_wait(monkeypatch):
    with connected("local", 1):
        worker = psutil.Process(ray.get(ray.remote(num_cpus=0)(lambda: os.getpid()).remote(), timeout=60))
        assert worker.cmdline()[0].startswith("ray::")
        with monkeypatch.context() as patch:
            patch.setattr(ray, "shutdown", lambda: None)
            _end_cluster()
        assert not running([worker])


OWN_ACTOR = """
import sys
import ray
from callboard.launch.launchers.ray.connection import connected

class Seven:
    def number(self):
        return 7

with connected(sys.argv[1], 1):
    # The cluster also connects to this process.
    print(ray.get(ray.remote(num_cpus=0)(Seven).remote().number.remote(), timeout=60))
"""


@pytest.mark.slow
@pytest.mark.parametrize("token, mode", [(True, {}), (False, {}), (True, {"RAY_AUTH_MODE": "disabled"})])
def test_a_cluster_of_this_machine_is_joined_with_its_token(token, mode, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if token:
        program = pathlib.Path(sys.executable).with_name("ray")
        subprocess.run([program, "get-auth-token", "--generate"], capture_output=True, check=True)
    with autoscaling_cluster(machines=0, processors=1, **mode) as address:
        done = subprocess.run([sys.executable, "-c", OWN_ACTOR, address], capture_output=True, text=True, timeout=120)
        assert done.stdout == "7\n" and "oken" not in done.stderr, done.stderr
