"""Generated requests: whatever comes, the answer says what is wrong with it, and good ones are answered beside it."""

import base64
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import socket
import struct
import threading

import pytest
from open_door import FIRST, TOKEN, free_port, opened

from callboard.policy_client import PolicyClient

ROOT = pathlib.Path(__file__).resolve().parents[3]
NUMBERS = [0, 1, -1, 255, 256, 2**31, 2**63, 2**64, -(2**63) - 1, 10**300, 1e308, 1e-320, 3e38, 0.5, True]
OTHERS: list = [
    None,
    "",
    "x",
    "\x00\x1b[2J",
    "\ud800",
    "ü" * 20,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    "x" * 999,
    ["x", 1],
    [[1], [1, 2]],
]
TEXTS = [
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "[" * 3000,
    "[" * 970 + "]" * 970,
    '{"a":' * 900 + "1" + "}" * 900,
    "01",
    "'a'",
    "[1,]",
]
BYTES = [
    {"base64": "AAAA"},
    {"base64": "!"},
    {"base64": 3},
    {"raw": 0},
    {"raw": -1},
    {"raw": 2**70},
    {"base64": "", "dtype": "O"},
]
PLACES = 128
"""More than the generated requests begin episodes, so that good ones always find a place."""
HEADS = [
    b"\x00" * 50,
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nAuthorization: \xff\r\n\r\n",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}}",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/step HTTP/1.1\r\nHost: x\r\nTOKEN\r\nExpect: nonsense\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /v1/%2e%2e/%00 HTTP/1.1\r\nHost: x\r\nTOKEN\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nA\x00B: c\r\n\r\n",
]


class Fuzz:
    """Requests of one seed to one server."""

    def __init__(self, port, token, good, seed):
        self._port, self._token, self._good = port, token, good
        self._random = random.Random(seed)
        self.statuses = collections.Counter()
        self.failures = []

    def send(self, number):
        for _ in range(number):
            kind = self._random.choice(["head", "text", "value", "value", "bytes", "cut", "steps", "type"])
            status, sent = self._raw() if kind == "head" else self._posted(kind)
            self.statuses[status] += 1
            if status is not None and status >= 500:
                self.failures.append((status, sent[:300]))

    def _value(self, depth=0):
        chance = self._random.random()
        if chance < 0.7 or depth > 3:
            return self._random.choice(NUMBERS + OTHERS + BYTES)
        if chance < 0.9:
            return [self._value(depth + 1) for _ in range(self._random.randrange(5))]
        return {
            self._random.choice(["a", "raw", "base64", "image", "", "\ud800"]): self._value(depth + 1) for _ in "ab"
        }

    def _timestep(self):
        sequence = self._random.choice([0, 0, 1, 2])
        step = {"episode": f"f{self._random.randrange(50)}", "sequence": sequence, "observation": self._good}
        return {**step, "reward": 0.5} if sequence else step

    def _changed(self):
        step = self._timestep()
        for _ in range(self._random.randrange(1, 3)):
            name = self._random.choice([*step, "reward", "terminated", "truncated", "action", "cut_off", "x", ""])
            step[name] = self._value()
            if self._random.random() < 0.1:
                del step[name]
        return step

    def _posted(self, kind):
        headers, path = {"Authorization": f"Bearer {self._token}"}, "/v1/step"
        if kind == "text":
            name = self._random.choice(["observation", "reward", "sequence", "episode", "terminated", "action"])
            body = json.dumps({**self._timestep(), name: "@"}).replace('"@"', self._random.choice(TEXTS)).encode()
        elif kind == "bytes":
            headers["Content-Type"] = "application/octet-stream"
            text = json.dumps({**self._timestep(), "observation": self._random.choice(BYTES)}).encode()
            length = self._random.choice([len(text), len(text), 0, len(text) + 9, 2**32 - 1])
            body = struct.pack("<I", length) + text + self._random.randbytes(self._random.choice([0, 8, 33]))
        elif kind == "cut":
            body = bytearray(json.dumps(self._timestep()).encode())
            body[self._random.randrange(len(body))] = self._random.randrange(256)
            body = bytes(body[: self._random.randrange(len(body) + 1)])
        elif kind == "steps":
            steps = [self._changed() if self._random.random() < 0.5 else self._timestep() for _ in range(3)]
            path, body = "/v1/steps", json.dumps(self._random.choice([{"steps": steps}, self._value()])).encode()
        else:
            if kind == "type":
                headers["Content-Type"] = self._random.choice(
                    ["", "a/b; charset=\xff", "text/plain", "application/json;"]
                )
            path = self._random.choice(["/v1/step", "/v1/step", "/v1/act", "/v1/spaces", "/v1/step?x=%ff"])
            body = json.dumps(self._changed()).encode()
        # "wait" asks for the same request again: the learner is slower than simulators here.
        for _ in range(20):
            status, answer = self._answer(path, body, headers)
            if status != 503 or answer["code"] != "wait":
                break
        return status, body

    def _answer(self, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def _raw(self):
        token = f"Authorization: Bearer {self._token}".encode()
        head = bytearray(self._random.choice(HEADS).replace(b"TOKEN", token))
        for _ in range(self._random.choice([0, 1, 4])):
            head[self._random.randrange(min(len(head), 120))] = self._random.randrange(256)
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            try:
                connection.sendall(head)
                connection.shutdown(socket.SHUT_WR)
                first = connection.recv(4096)
            except OSError:
                return None, bytes(head)
        return int(first.split(b" ")[1]) if first.startswith(b"HTTP/1.") else None, bytes(head)


@pytest.mark.parametrize(
    "number, seed", [(150, 0), *(pytest.param(3000, n, marks=pytest.mark.slow) for n in (1, 2, 3))]
)
def test_generated_requests_are_answered_by_what_is_wrong_with_them(number, seed):
    good = {"image": {"base64": base64.b64encode(bytes(6)).decode()}, "speed": [0.5, -2.0], "gear": 3}
    with opened(places=PLACES) as door:
        fuzz = Fuzz(int(door.url.rpartition(":")[2]), TOKEN, good, seed)
        fuzz.send(number)
        assert not fuzz.failures
        assert fuzz.statuses[200] and fuzz.statuses[400]
        assert PolicyClient(door.url, TOKEN, patience=5.0).begin(FIRST).action["turn"] == 3


@pytest.mark.slow
def test_a_training_run_goes_through_generated_requests(start, tmp_path):
    port, examples = free_port(), ROOT / "examples" / "external_simulators"
    options = [
        "--spaces",
        examples / "spaces.json",
        "--actors",
        "1",
        "--envs-per-actor",
        str(PLACES),
        "--agent.batch-size",
        str(PLACES),
        "--agent.unroll-length",
        "8",
        "--max-steps",
        "1000000",
    ]
    run = start("train", "ppo", "--policy-server", f"127.0.0.1:{port}", *options, "--run-dir", tmp_path / "run")
    run.wait_until(lambda: run.process.poll() is not None or "policy server at" in run.text())
    assert run.process.poll() is None, run.text()
    token = (run.run_dir / "policy_server_token").read_text().strip()
    over, played = threading.Event(), collections.Counter()

    def simulate(number):
        client = PolicyClient(f"http://127.0.0.1:{port}", token)
        while not over.is_set():
            episode = client.begin([0.0, 0.5])
            for _ in range(9):
                episode.step(0.1, [0.1, 0.5])
            episode.end(1.0, [0.5, 0.5], terminated=True)
            played[number] += 1

    # Several at a time: most of them wait for the policy, and the policy for the learner.
    fuzzes = [Fuzz(port, token, [0.0, 0.5], seed) for seed in range(12)]
    with concurrent.futures.ThreadPoolExecutor(len(fuzzes) + 4) as pool:
        simulators = [pool.submit(simulate, number) for number in range(4)]
        try:
            list(pool.map(lambda fuzz: fuzz.send(250), fuzzes))
        finally:
            over.set()
        for simulator in simulators:
            simulator.result(60)
    statuses = sum((fuzz.statuses for fuzz in fuzzes), collections.Counter())
    assert not [failure for fuzz in fuzzes for failure in fuzz.failures]
    assert len(played) == 4 and min(played.values()) > 1, played
    assert statuses[200] and statuses[400] and sum(statuses.values()) == 3000
    assert run.process.poll() is None, run.text()
    assert "Traceback" not in run.text() + (run.run_dir / "logs" / "actor-0.log").read_text()
    run.interrupt()
