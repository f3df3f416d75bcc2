"""Machines that join a run with its token: who is let in, and which actors it gets."""

import contextlib
import dataclasses
import errno
import hashlib
import hmac
import json
import socket
import threading

import pytest
from hosts_without_network import CLUSTER

from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.launchers.hosts.cluster_file import Guests, read_cluster
from callboard.launch.launchers.hosts.guests import Door, GuestList, GuestPlace, NotAdmitted, knock
from callboard.launch.processes.ports import reserve_any

TOKEN = "a-token-of-this-run-alone"


class Listed:
    """A list of guests for two actors each, with a clock of the test."""

    def __init__(self, networks=("10.9.0.0/24",), most=6, allow_public=False):
        self.now, self.present, self.changes = 0.0, set(), []
        cluster = dataclasses.replace(CLUSTER, guests=Guests(networks, 2))
        self.guests = GuestList(
            cluster,
            most,
            self.present.__contains__,
            lambda addresses: self.changes.append(sorted(addresses)),
            allow_public,
            lambda: self.now,
        )

    def admit(self, name, address="10.9.0.7", held=()):
        place = self.guests.admit(name, address, held)
        self.present.add(name)
        return list(place.actors)


def test_each_machine_gets_actors_that_no_other_has():
    listed = Listed()
    assert listed.admit("x", "10.9.0.7") == [1, 2], "the file places actor/0"
    assert listed.admit("y", "10.9.0.8") == [3, 4]
    assert listed.admit("z", "10.9.0.9") == [5], "no more are left"
    with pytest.raises(NotAdmitted, match="the run has all of its 6 actors"):
        listed.admit("w", "10.9.0.10")
    assert listed.changes[-1] == ["10.9.0.7", "10.9.0.8", "10.9.0.9"]
    assert listed.guests.address_of("y") == "10.9.0.8" and listed.guests.address_of("w") == ""


def test_who_shows_the_token_again_keeps_its_place():
    listed = Listed()
    assert listed.admit("x") == listed.admit("x") == [1, 2] and len(listed.changes) == 1
    with pytest.raises(NotAdmitted, match="another machine has the name x"):
        listed.admit("x", "10.9.0.8")


def test_the_actors_of_a_machine_that_has_gone_are_given_to_others():
    listed = Listed(most=3)
    listed.admit("x", "10.9.0.7")
    listed.present.remove("x")
    with pytest.raises(NotAdmitted):
        listed.admit("y", "10.9.0.8")  # It may be on its way.
    listed.now = 61.0
    assert listed.admit("y", "10.9.0.8") == [1, 2]
    assert listed.guests.address_of("x") == "" and listed.changes[-1] == ["10.9.0.8"]
    with pytest.raises(NotAdmitted):
        listed.admit("x", "10.9.0.7", [1, 2])


def test_after_a_restart_of_the_first_host_machines_keep_their_actors():
    listed = Listed()
    assert listed.admit("y", "10.9.0.8", [3, 4]) == [3, 4]
    assert listed.admit("x", "10.9.0.7", [1, 2]) == [1, 2]
    assert listed.admit("z", "10.9.0.9", [3, 4]) == [5], "these are those of y"
    assert Listed().admit("x", held=[0]) == [1, 2], "this is one of the file"
    assert Listed().admit("x", held=[7, 8]) == [1, 2]


@pytest.mark.parametrize("name", ["a", "", "x\n", "x" * 201])
def test_names_of_the_file_and_names_that_are_none_are_refused(name):
    with pytest.raises(NotAdmitted, match="is no name for a machine that joins"):
        Listed().admit(name)


@pytest.mark.parametrize(
    ("networks", "address", "allow_public", "is_admitted"),
    [
        (("10.9.0.0/24",), "10.9.1.7", False, False),
        (("10.9.0.0/24", "10.9.1.0/24"), "10.9.1.7", False, True),
        (("any",), "192.168.3.4", False, True),
        (("any",), "fd00::7", False, True),
        (("10.9.0.0/24",), "fd00::7", False, False),
        (("any",), "8.8.8.8", False, False),
        (("any",), "8.8.8.8", True, True),
    ],
)
def test_the_file_says_from_where(networks, address, allow_public, is_admitted):
    listed = Listed(networks, allow_public=allow_public)
    if is_admitted:
        assert listed.admit("x", address)
    else:
        with pytest.raises(NotAdmitted, match="lets no machine join from|is a public address"):
            listed.admit("x", address)


@pytest.fixture
def door():
    asked = []

    def admit(name, address, held):
        asked.append((name, address, list(held)))
        if name == "full":
            raise NotAdmitted("the run has all of its actors")
        return GuestPlace(address, [5, 6])

    reserved = reserve_any()
    reserved.release()
    opened = Door(reserved.port, TOKEN, admit)
    yield ("127.0.0.1", reserved.port), asked
    opened.close()


def test_the_token_opens_the_door(door):
    address, asked = door
    assert knock(address, TOKEN, "x") == GuestPlace("127.0.0.1", [5, 6])
    assert knock(address, TOKEN, "x", [5, 6]).actors == [5, 6]
    assert asked == [("x", "127.0.0.1", []), ("x", "127.0.0.1", [5, 6])]
    with pytest.raises(NotAdmitted, match="the run has all of its actors"):
        knock(address, TOKEN, "full")


def test_another_token_does_not(door):
    address, asked = door
    with pytest.raises(NotAdmitted, match="the first host has another token"):
        knock(address, TOKEN + "x", "x")
    assert asked == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"[1]\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"host": "x"}\n',
        b'{"host": "x", "nonce": "1", "held": [], "code": null}\n',
        b'{"host": "x", "nonce": "1", "held": [], "code": "\\u00e9"}\n',
        b'{"host": "x", "nonce": "1", "held": 5, "code": "1"}\n',
        b"[" * 16_000 + b"\n",
        b"x" * 20_000 + b"\n",
        b"\x80\x04N.\n",
    ],
)
def test_whatever_else_is_sent_changes_nothing(door, said):
    address, asked = door
    with socket.create_connection(address, timeout=10) as connection:
        assert b"nonce" in connection.recv(1000)
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer in (b"", b'{"wrong": true}\n')
    assert asked == [] and knock(address, TOKEN, "x").actors == [5, 6]


def test_every_proof_is_of_other_numbers_and_one_address(door):
    address, asked = door
    with socket.create_connection(address) as first, socket.create_connection(address) as second:
        nonces = [json.loads(one.recv(1000))["nonce"] for one in (first, second)]
    assert nonces[0] != nonces[1]
    for own, wrong in (("127.0.0.1", False), ("127.0.0.2", True)):
        with socket.create_connection(address) as connection:
            nonce = json.loads(connection.recv(1000))["nonce"]
            parts = ["guest", own, nonce, "1", "x"]
            code = hmac.new(TOKEN.encode(), json.dumps(parts).encode(), hashlib.sha256).hexdigest()
            said = {"host": "x", "nonce": "1", "held": [], "code": code}
            connection.sendall(json.dumps(said).encode() + b"\n")
            assert json.loads(connection.recv(1000)).get("wrong", False) == wrong
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b'{"answer": "[\\"10.0.0.1\\", [1], \\"\\"]", "code": "0"}\n', NotAdmitted),
        (b"hello\n", OSError),
        (b"{}\n", OSError),
        (b"", OSError),
    ],
)
def test_a_machine_believes_only_who_knows_the_token(answer, problem):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b'{"nonce": "1"}\n')
                connection.recv(1000)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(problem):
            knock(listener.getsockname()[:2], TOKEN, "x")


CONTENT = """
hosts: {a: 10.0.0.1, b: 10.0.0.2}
ports: 20000-20099
learner: [a]
replay: [a]
actor: {b: 2}
"""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("guests: 5", "guests must be such as"),
        ("guests: {from: 10.0.0.0/24}", "guests must be such as"),
        ("guests: {from: 10.0.0.0/24, actors: 0}", "actors is the number that each machine gets, not 0"),
        ("guests: {from: 10.0.0.0/24, actors: true}", "actors is the number"),
        ("guests: {from: 10.0.0.1/24, actors: 2}", "from is a range of addresses, several or any"),
        ("guests: {from: 5, actors: 2}", "from is a range"),
        ("guests: {from: [], actors: 2}", "guests must be such as"),
        ("guests: {from: any, actors: 2}\ntunnel: ssh", "have no tunnel"),
        ("guests: {from: any, actors: 2}\nreplay: [a, b]", "place all of learner, replay and inference on a"),
    ],
)
def test_mistakes_in_the_file_are_one_line(tmp_path, line, problem):
    path = tmp_path / "cluster.yaml"
    path.write_text((CONTENT.replace("replay: [a]\n", "") if "replay" in line else CONTENT) + line + "\n")
    with pytest.raises(CallboardError, match=problem) as raised:
        read_cluster(path)
    assert "\n" not in str(raised.value)


def test_a_file_that_lets_machines_join(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(CONTENT + "guests: {from: [10.0.1.0/24, fd00::/64], actors: 3}\n")
    cluster = read_cluster(path)
    assert cluster.guests == Guests(("10.0.1.0/24", "fd00::/64"), 3)
    assert cluster.host_of("actor/1") == "b" and cluster.host_of("actor/2") == ""
    joined = cluster.with_guest("x", "10.0.1.9", [2, 3])
    assert joined.host_of("actor/2") == "x" and joined.host_of("actor/4") == "" and joined.host_of("evaluator/0") == "a"
    assert cluster.settings() == read_cluster(path).settings() and "guests" in cluster.settings()


def test_the_name_of_a_host_is_for_that_machine(tmp_path, capsys):
    """Under the first host's name, a machine that wants to join would begin a run of its own."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CONTENT + "guests: {from: any, actors: 3}\n")
    # The addresses are those of documentation, which no machine has.
    path.write_text(path.read_text().replace("10.0.0.", "198.51.100."))
    options = ["--launcher", "hosts", "--cluster", str(path), "--actors", "1..9", "--run-dir", str(tmp_path / "run")]
    assert main(["train", "impala", "--env", "CartPole-v1", "--host", "a", *options]) == 2
    assert "198.51.100.1, the address of the host a, is not one of this machine's" in capsys.readouterr().err
    assert main(["cluster", "check", str(path), "--host", "zz"]) == 2
    assert "has no host 'zz'" in capsys.readouterr().err


def test_those_who_say_nothing_keep_no_machine_out(door):
    address, _ = door
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(address))
        assert knock(address, TOKEN, "x").actors == [5, 6]
        for _ in range(60):
            stack.enter_context(socket.create_connection(address))
        assert knock(address, TOKEN, "x").actors == [5, 6]


def test_the_door_stays_open_after_an_error_of_the_system(door, monkeypatch):
    address, _ = door
    accept, failures = socket.socket.accept, iter([OSError(errno.EMFILE, "too many open files")] * 2)

    def failing(listener):
        for failure in failures:
            raise failure
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    assert knock(address, TOKEN, "x").actors == [5, 6]  # The thread waits in the former call.
    for _ in range(2):
        assert knock(address, TOKEN, "x").actors == [5, 6]
