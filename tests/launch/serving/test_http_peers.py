"""What peers send that are not our client: other HTTP clients, and those that mean harm."""

import gzip
import http.client
import json
import logging
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest
from open_door import FIRST, TOKEN, opened

from callboard.policy_client import PolicyClient
from callboard.runtime.deadlines import wait_until

PLAIN = {"image": FIRST["image"].tolist(), "speed": [0.5, -2.0], "gear": 3}
HEAD = f"POST /v1/step HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@pytest.fixture(scope="module")
def served():
    with opened(places=64) as door:
        yield door


def begin(name):
    return json.dumps({"episode": name, "sequence": 0, "observation": PLAIN}).encode()


def send(door, headers, body=b"", path="/v1/step", method="POST"):
    """Returns the status and the answer, with exactly the given headers."""
    connection = http.client.HTTPConnection(*door.url.removeprefix("http://").split(":"), timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def send_raw(door, data):
    """Returns what comes back, up to the end of the connection or of two seconds."""
    host, port = door.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=2) as connection:
        connection.sendall(data)
        try:
            return connection.recv(4096)
        except (ConnectionResetError, TimeoutError):
            return b""


TYPES = [
    None,
    "",
    "application/json",
    "application/json; charset=utf-8",
    "application/json; charset=",
    "application/x-www-form-urlencoded",
    "text/plain",
    "multipart/form-data; boundary=x",
    "nonsense",
]


@pytest.mark.parametrize("content_type", TYPES)
def test_json_is_read_whatever_the_content_type_says(served, content_type):
    headers = {"Authorization": f"Bearer {TOKEN}", **({} if content_type is None else {"Content-Type": content_type})}
    status, answer = send(served, headers, begin(f"type{TYPES.index(content_type)}"))
    assert status == 200 and list(answer) == ["action"]


def test_the_scheme_of_the_header_has_no_case(served):
    assert send(served, {"Authorization": f"bearer  {TOKEN}"}, path="/v1/spaces", method="GET")[0] == 200


@pytest.mark.parametrize("extra", [(), ("-H", "Content-Type:"), ("-H", "Content-Type: application/json; charset=")])
def test_curl(served, extra):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "-s", f"{served.url}/v1/step", "-H", f"Authorization: Bearer {TOKEN}", *extra, "-d", "@-"]
    done = subprocess.run(command, input=begin("curl"), capture_output=True, timeout=60)
    assert "action" in json.loads(done.stdout)


NODE = """
const [url, token, body] = process.argv.slice(1);
const send = require("http").request(url + "/v1/step", {method: "POST", headers: {Authorization: "Bearer " + token}},
    (answer) => { answer.on("data", (data) => process.stdout.write(data)); });
send.end(body);
"""


def test_node_without_a_content_type(served):
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    done = subprocess.run(["node", "-e", NODE, served.url, TOKEN, begin("node")], capture_output=True, timeout=60)
    assert "action" in json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("given", [b"\xff", b"Bearer \xff\xfe", b"Bearer \xc3\xa9", b"Bearer", b"", b"Basic eDp5"])
@pytest.mark.parametrize("path", [b"/v1/spaces", b"/v1/health"])
def test_a_header_of_any_bytes_is_a_wrong_token(served, given, path, caplog):
    request = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: " + given + b"\r\n\r\n"
    assert send_raw(served, request).split(b" ")[1] in (b"401", b"429", b"400")
    assert not [one for one in caplog.records if one.exc_info]


def test_what_is_wrong_with_the_token_is_said():
    with opened() as door:
        assert "Authorization: Bearer TOKEN" in send(door, {}, path="/v1/spaces", method="GET")[1]["error"]
        wrong = {"Authorization": f"Bearer {TOKEN}x"}
        assert "the token is wrong" in send(door, wrong, path="/v1/spaces", method="GET")[1]["error"]


def test_health_without_the_token_shows_only_that_it_works(served):
    for host in ("localhost", "elsewhere.example"):
        assert send(served, {"Host": host}, path="/v1/health", method="GET") == (200, {"status": "ok"})
    assert "version" in send(served, {"Authorization": f"Bearer {TOKEN}"}, path="/v1/health", method="GET")[1]


@pytest.mark.parametrize(
    "method, path, status, code, text",
    [
        ("GET", "/", 404, "unknown_path", "/v1/health; /v1/act is there with callboard serve only"),
        ("POST", "/v1/act", 404, "unknown_path", "callboard serve"),
        ("GET", "/v1/step", 405, "wrong_method", "with POST"),
        ("POST", "/v1/step", 400, "bad_request", '{"episode": "a1", "sequence": 0, "observation": ...}'),
        ("POST", "/v1/steps", 400, "bad_request", '{"steps": [...]}'),
    ],
)
def test_wrong_requests_get_the_code_and_the_example_of_their_path(served, method, path, status, code, text):
    found, answer = send(served, {"Authorization": f"Bearer {TOKEN}"}, b"[1, 2]", path, method)
    assert (found, answer["code"]) == (status, code) and text in answer["error"]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_is_not_compressed_as_it_says(served, encoding):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Encoding": encoding}
    assert send(served, headers, b"\x00abcde" * 9)[0] == 400
    if encoding == "gzip":
        assert send(served, headers, gzip.compress(begin("zip")))[0] == 200
        assert send(served, headers, gzip.compress(b" " * 10**8))[0] == 413


@pytest.mark.parametrize("depth", [30, 900, 960, 980, 990, 30_000])
@pytest.mark.parametrize("field", ["observation", "shape", "episode", "x"])
def test_any_depth_is_an_answer(served, depth, field):
    deep = "[" * depth + "]" * depth
    if field == "shape":
        field, deep = "observation", f'{{"image": {{"base64": "", "shape": {deep}}}, "speed": [0, 0], "gear": 3}}'
    body = json.dumps({"episode": "deep", "sequence": 0, field: "@"}).replace('"@"', deep)
    assert send(served, {"Authorization": f"Bearer {TOKEN}"}, body.encode())[0] == 400


def test_malformed_requests_write_a_bounded_log(caplog):
    with caplog.at_level(logging.INFO), opened() as door:
        for number in range(100):
            send_raw(door, b"GARBAGE \x1b[2J%d\r\n\r\n" % number)
            send_raw(door, HEAD + b"Content-Length: 2\r\n\r\n[]")
        assert 1 <= len(caplog.records) <= 30
        assert all(one.getMessage().isprintable() and not one.exc_info for one in caplog.records)


def test_a_refused_request_is_logged_with_its_peer(caplog):
    with caplog.at_level(logging.INFO), opened() as door:
        body = json.dumps({"episode": "sim-7", "sequence": 1, "observation": PLAIN, "reward": 2.9e38}).encode()
        assert send(door, {"Authorization": f"Bearer {TOKEN}"}, body)[0] == 400
        assert any("127.0.0.1 was refused: the reward of episode 'sim-7'" in text for text in caplog.messages)


class Flood:
    """Connections that send half a request, and come back when they are closed."""

    def __init__(self, door, number, sent):
        self._address = ("127.0.0.1", int(door.url.rpartition(":")[2]))
        self._number, self._sent = number, sent
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep)

    def __enter__(self):
        self._thread.start()
        time.sleep(0.5)

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _keep(self):
        held = []
        while not self._over.is_set():
            held = [one for one in held if self._is_open(one)]
            while len(held) < self._number and not self._over.is_set():
                try:
                    held.append(socket.create_connection(self._address, timeout=5))
                    held[-1].sendall(self._sent)
                except OSError:
                    break
            time.sleep(0.02)
        for one in held:
            one.close()

    @staticmethod
    def _is_open(connection):
        try:
            return connection.recv(1, socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


@pytest.mark.slow("daily")
@pytest.mark.parametrize("sent", [b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-a", b"", b"\x16\x03\x01"])
def test_peers_without_the_token_keep_no_client_out(sent):
    with opened(places=8) as door:
        known = PolicyClient(door.url, TOKEN, patience=0.0)
        known.spaces()
        with Flood(door, 100, sent):
            for _ in range(20):
                client = PolicyClient(door.url, TOKEN, patience=5.0)
                client.begin(FIRST).cut_off()
                client.close()
            known.spaces()
            connection = known._connection
        known.spaces()
        assert known._connection is connection


def test_a_connection_without_the_token_is_closed(monkeypatch):
    monkeypatch.setattr("callboard.launch.serving.connections.FIRST_SECONDS", 0.1)
    monkeypatch.setattr("callboard.launch.serving.connections._HEAD_SECONDS", 0.1)
    with opened() as door:
        client = PolicyClient(door.url, TOKEN, patience=0.0)
        client.spaces()
        connection = client._connection
        assert send_raw(door, b"POST /v1/step HTTP/1.1\r\n") == b""
        client.spaces()
        assert client._connection is connection
        # One that had the token, and sends a header without an end.
        client._connection.sock.sendall(b"POST /v1/step HTTP/1.1\r\nX: y\r\n")
        with pytest.raises(OSError):
            wait_until(lambda: client._connection.sock.send(b"X: y\r\n") == 0, 5.0)


def test_a_large_body_leaves_time_for_others_and_takes_memory_by_its_size(served):
    def resident():
        with open(f"/proc/{os.getpid()}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    observation = {**PLAIN, "speed": ["x" * 25_000, *[""] * 9_000]}
    body = json.dumps({"episode": "large", "sequence": 0, "observation": observation}).encode()
    for _ in range(3):
        status, answer = send(served, {"Authorization": f"Bearer {TOKEN}"}, body)
        assert status == 400 and "contains text, 'xxx" in answer["error"]
    together = json.dumps({"steps": [json.loads(body)]}).encode()
    assert send(served, {"Authorization": f"Bearer {TOKEN}"}, together, "/v1/steps")[0] == 400
    assert resident() - before < 100 * 2**20
