"""Requests over HTTP: what is answered, and that every bad one is one clear error."""

import base64
import concurrent.futures
import http.client
import json
import socket
import ssl
import struct
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
from gymnasium import spaces
from open_door import FIRST, OBSERVATION, TOKEN, opened

from callboard.errors import CallboardError
from callboard.launch.serving.server_address import tls_context
from callboard.policy_client import EpisodeLost, PolicyClient, ServerError, ServerUnreachable
from callboard.runtime.deadlines import wait_until

PLAIN = {"image": FIRST["image"].tolist(), "speed": [0.5, -2.0], "gear": 3}
BEGIN = {"episode": "a", "sequence": 0, "observation": PLAIN}


@pytest.fixture(scope="module")
def served():
    with opened() as door:
        yield door


def send(url, content, token=TOKEN, path="/v1/step", binary=False, method="POST"):
    """Returns the status and the answer."""
    body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
    headers = {"Content-Type": "application/octet-stream" if binary else "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, body, headers, method=method)) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_an_episode(served):
    client = PolicyClient(served.url, TOKEN)
    episode = client.begin(FIRST)
    assert episode.action["turn"] == 3 and type(episode.action["turn"]) is int
    np.testing.assert_allclose(episode.action["force"], [0.05, -0.2])
    assert episode.action["force"].dtype == np.float32
    action = episode.step(1.5, {**FIRST, "gear": 4})
    assert action["turn"] == 1
    np.testing.assert_array_equal(served.seen[-1].observation["image"][0], FIRST["image"])
    assert float(served.seen[-1].reward[0]) == 1.5
    episode.end(0.0, FIRST, terminated=True)
    assert episode.action is None
    with pytest.raises(EpisodeLost, match="has ended"):
        episode.step(0.0, FIRST)


def test_a_refused_timestep_can_be_corrected(served):
    client = PolicyClient(served.url, TOKEN)
    episode = client.begin(FIRST)
    for wrong in ({"image": 1}, {**FIRST, "gear": object()}):
        with pytest.raises((ServerError, TypeError)):
            episode.step(1.5, wrong)
    with pytest.raises(ValueError):
        episode.step("much", FIRST)
    assert episode.step(1.5, {**FIRST, "gear": 4})["turn"] == 1
    with pytest.raises(ServerError, match="no part"):
        episode.end(0.0, {}, terminated=True)
    episode.cut_off()
    with pytest.raises(EpisodeLost, match="has ended"):
        episode.step(0.0, FIRST)


@pytest.mark.parametrize("form", ["lists", "base64", "raw"])
def test_forms_of_an_observation(served, form):
    name = f"form-{form}"
    image, speed = FIRST["image"].tobytes(), np.array([0.5, -2.0]).tobytes()
    body = {**BEGIN, "episode": name}
    if form == "base64":
        text = {"base64": base64.b64encode(speed).decode(), "dtype": "float64", "shape": [2]}
        body["observation"] = {"image": {"base64": base64.b64encode(image).decode()}, "speed": text, "gear": 3}
    if form == "raw":
        body["observation"] = {"image": {"raw": 16}, "speed": {"raw": 0}, "gear": 3}
        text = json.dumps(body).encode()
        body = struct.pack("<I", len(text)) + text + speed + image
    assert send(served.url, body, binary=form == "raw")[0] == 200
    seen = served.seen[-1].observation
    np.testing.assert_array_equal(seen["image"][0], FIRST["image"])
    np.testing.assert_array_equal(seen["speed"][0], np.array([0.5, -2.0], np.float32))
    assert int(seen["gear"][0]) == 2


@pytest.fixture(scope="module")
def roomy():
    """A server with room for several agents."""
    with opened(places=8) as door:
        yield door


def test_several_agents_of_a_simulator_have_episodes_of_their_own_in_one_request(roomy):
    client = PolicyClient(roomy.url, TOKEN)
    before = roomy.episodes.open_episodes
    episode = client.begin_agents({"red": FIRST, "blue": FIRST})
    assert list(episode.actions) == ["red", "blue"] and episode.actions["red"]["turn"] == 3
    assert roomy.episodes.open_episodes == before + 2
    # One goes, and another comes.
    seen = len(roomy.seen)
    actions = episode.step({"red": 1.0, "blue": 2.0}, {"red": FIRST, "blue": FIRST, "green": FIRST}, {"red": True})
    assert list(actions) == ["blue", "green"] and roomy.episodes.open_episodes == before + 2
    assert sorted(float(one.reward[0]) for one in roomy.seen[seen:]) == [0.0, 1.0, 2.0]
    ended = [one for one in roomy.seen[seen:] if one.last[0]]
    assert len(ended) == 1 and float(ended[0].discount[0]) == 0.0
    episode.end({"blue": 0.5}, {"blue": FIRST, "green": FIRST}, terminated=False)
    assert episode.actions == {} and roomy.episodes.open_episodes == before


def test_more_agents_than_a_request_may_hold_are_sent_in_several(roomy):
    client = PolicyClient(roomy.url, TOKEN)
    episode = client.begin_agents({str(number): FIRST for number in range(3)})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("callboard.policy_client._MOST_TOGETHER", 2)
        assert len(episode.step({}, {str(number): FIRST for number in range(3)})) == 3
    episode.cut_off()
    assert episode.actions == {}


def test_a_refused_timestep_of_several_agents_can_be_corrected(roomy):
    before = roomy.episodes.open_episodes
    episode = PolicyClient(roomy.url, TOKEN).begin_agents({"red": FIRST, "blue": FIRST})
    with pytest.raises(ServerError, match="no part"):
        episode.step({}, {"red": FIRST, "blue": {}, "green": FIRST})
    with pytest.raises(ValueError, match="^agent 'red' ends without an observation"):
        episode.step({}, {"blue": FIRST}, {"red": True})
    assert list(episode.step({}, {"red": FIRST, "blue": FIRST, "green": FIRST})) == ["red", "blue", "green"]
    assert roomy.episodes.open_episodes == before + 3
    with pytest.raises(ServerError, match="'8': all 8 places|8: all 8 places"):
        episode.step({}, {str(number): FIRST for number in range(9)})
    assert roomy.episodes.open_episodes == before


def test_if_the_episode_of_one_agent_is_lost_the_others_are_cut_off(roomy):
    client = PolicyClient(roomy.url, TOKEN)
    episode = client.begin_agents({"red": FIRST, "blue": FIRST})
    before = roomy.episodes.open_episodes
    name = episode._open["red"].name
    assert send(roomy.url, {"episode": name, "sequence": 1, "cut_off": True})[0] == 200
    with pytest.raises(EpisodeLost, match="red: episode .* has ended"):
        episode.step({}, {"red": FIRST, "blue": FIRST})
    assert episode.actions == {} and roomy.episodes.open_episodes == before - 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"steps": []}, "with 1 to 16 timesteps"),
        ({"steps": [BEGIN] * 17}, "with 1 to 16 timesteps"),
        ({"steps": [BEGIN, BEGIN]}, "two timesteps of one episode"),
        ({"steps": [BEGIN, 3]}, "each of steps is an object"),
        ({"steps": [BEGIN], "more": 1}, "and nothing else"),
        ({"steps": [{**BEGIN, "reward": "1"}]}, "must be a number"),
    ],
)
def test_bad_requests_of_several_timesteps_are_one_clear_error(served, content, problem):
    before = served.episodes.requests
    status, answer = send(served.url, content, path="/v1/steps")
    assert (status, answer["code"]) == (400, "bad_request") and problem in answer["error"]
    assert served.episodes.requests == before


class Parade:
    """PettingZoo's parallel API: two agents, the first of which leaves after its first step."""

    def reset(self):
        self.time = 0
        return {"a": FIRST, "b": FIRST}, {}

    def step(self, actions):
        assert list(actions) == (["a", "b"] if self.time == 0 else ["b"])
        self.time += 1
        agents = ["a", "b"] if self.time == 1 else ["b"]
        ends = {agent: agent == "a" or self.time == 3 for agent in agents}
        return dict.fromkeys(agents, FIRST), dict.fromkeys(agents, 1.0), ends, dict.fromkeys(agents, False), {}


def test_an_environment_with_several_agents_is_played(roomy):
    assert PolicyClient(roomy.url, TOKEN).play_agents(Parade(), 2) == [{"a": 1.0, "b": 3.0}] * 2


def observed(**parts):
    return {**BEGIN, "episode": "bad", "observation": {**PLAIN, **parts}}


BAD = {
    "no JSON": b"{",
    "not an object": [1],
    "deeply nested": b"[" * 60_000,
    "a NaN": json.dumps({**BEGIN, "reward": float("nan")}).encode(),
    "an infinite reward": json.dumps({**BEGIN, "reward": 1}).encode().replace(b'"reward": 1', b'"reward": 1e999'),
    "an unknown field": {**BEGIN, "done": True},
    "no episode": {"sequence": 0, "observation": PLAIN},
    "a long name": {**BEGIN, "episode": "a" * 65},
    "a name that is a path": {**BEGIN, "episode": "../x"},
    "a negative sequence": {**BEGIN, "sequence": -1},
    "a bool as a sequence": {**BEGIN, "sequence": True},
    "a huge sequence": {**BEGIN, "sequence": 2**40},
    "no reward": {"episode": "bad", "sequence": 1, "observation": PLAIN},
    "a reward before any action": {**BEGIN, "episode": "bad", "reward": 1},
    "a reward that no loss survives": {**BEGIN, "episode": "bad", "sequence": 1, "reward": 2.9e38},
    "a reward of 400 digits": {**BEGIN, "episode": "bad", "sequence": 1, "reward": 10**400},
    "a reward that is text": {**BEGIN, "reward": "1"},
    "a flag that is a number": {**BEGIN, "terminated": 1},
    "no observation": {"episode": "bad", "sequence": 0},
    "an observation without a part": {**BEGIN, "observation": {"image": PLAIN["image"], "gear": 3}},
    "a part too many": observed(sound=1),
    "the wrong shape": observed(speed=[1.0]),
    "a batch": observed(speed=[[1.0, 2.0]]),
    "a ragged list": observed(image=[[1, 2], [3]]),
    "text": observed(speed="fast"),
    "null": observed(speed=None),
    "a choice that there is not": observed(gear=9),
    "a number that uint8 cannot hold": observed(image=(FIRST["image"].astype(int) + 300).tolist()),
    "a number of 200 digits": observed(speed=[10**200, 1]),
    "an infinite number": json.dumps(observed(speed=[7777, 1])).encode().replace(b"7777", b"1e999"),
    "no base64": observed(image={"base64": "!"}),
    "too few bytes": observed(image={"base64": "AAAA"}),
    "bytes of another shape": observed(image={"base64": "AAAA", "shape": [3, 2, 1]}),
    "bytes of a dtype that there is not": observed(image={"base64": "AAAA", "dtype": "object"}),
    "raw bytes that are not there": observed(image={"raw": 0}),
    "a negative offset": observed(image={"raw": -6}),
    "an action without a part": {**BEGIN, "action": {"turn": 1}},
    "an action that is no choice": {**BEGIN, "action": {"turn": 0, "force": [0, 0]}},
    "an action beyond its bounds": {**BEGIN, "action": {"turn": 1, "force": [0, 2]}},
}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("content", BAD.values(), ids=list(BAD))
def test_a_bad_request_is_one_clear_error(served, content):
    status, answer = send(served.url, content)
    assert status == 400, answer
    assert answer["code"] == "bad_request"
    assert 10 < len(answer["error"]) < 300 and "\n" not in answer["error"]
    assert served.episodes.open_episodes < 4


def test_an_action_that_the_mask_forbids_and_a_mask_that_is_none_are_bad_requests():
    seen = spaces.Dict({**OBSERVATION.spaces, "action_mask": spaces.Box(0, 9, (3,), np.int8)})
    with opened(observation=seen) as door:

        def sent(mask, turn, **fields):
            observation = {**PLAIN, "action_mask": mask}
            action = {"turn": turn, "force": [0, 0]}
            return send(door.url, {**BEGIN, "observation": observation, "action": action, **fields})

        status, answer = sent([1, 0, 1], 2)
        assert status == 400 and answer["code"] == "bad_request"
        assert answer["error"].startswith(
            "the action at 'turn' is 2, which the 'action_mask' of the observation forbids"
        )
        for mask in ([0, 0, 0], [1, 5, 1]):
            assert sent(mask, 1)[0] == 400
        last = {"sequence": 1, "reward": 0, "terminated": True}
        assert sent([1, 5, 1], 1, **last)[0] == 400
        assert door.episodes.open_episodes == 0
        assert sent([1, 0, 1], 3)[1] == {"action": {"force": [0.0, 0.0], "turn": 3}}
        # No action follows the last observation.
        assert sent([0, 0, 0], 2, **last) == (200, {})


@pytest.mark.parametrize("body", [b"", b"\1", struct.pack("<I", 10) + b"{}", struct.pack("<I", 2**32 - 1)])
def test_bad_binary_bodies(served, body):
    assert send(served.url, body, binary=True)[0] == 400


def test_a_body_that_is_too_large(served):
    status, answer = send(served.url, b" " * (served.most_bytes + 1))
    assert status == 413 and str(served.most_bytes) in answer["error"]


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("NONSENSE\r\n\r\n", 400),
        ("GET /v1/health HTTP/9.x\r\n\r\n", 400),
        ("POST /v1/step HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        ("GET /v1/health HTTP/1.1\r\nHost: a\r\nExpect: a-gift\r\n\r\n", 417),
        ("GET /v1/none HTTP/1.1\r\nHost: a\r\nExpect: a-gift\r\n\r\n", 417),
        ("POST /v1/step HTTP/1.1\r\nHost: a\r\nContent-Encoding: odd\r\nContent-Length: 2\r\n\r\n{}", 401),
        (
            "POST /v1/step HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n{{}}",
            400,
        ),
        (f"GET /v1/health HTTP/1.1\r\nHost: a\r\nLong: {'x' * 20_000}\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_answered_in_the_same_form(served, request_text, status):
    address = urllib.parse.urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), 10) as connection:
        connection.sendall(request_text.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        content = json.loads(answer.read())
    assert answer.status == status and content.keys() == {"error", "code"}
    assert content["error"] and content["error"].isprintable()


def test_wrong_paths_and_methods(served):
    assert send(served.url, None, path="/", method="GET")[0] == 404
    assert send(served.url, None, method="GET")[0] == 405


def test_nothing_is_answered_without_the_token():
    with opened() as served:
        for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x"):
            for path, method in (("/v1/step", "POST"), ("/v1/spaces", "GET"), ("/other", "GET")):
                status, answer = send(served.url, None if method == "GET" else BEGIN, token, path, method=method)
                assert status in (401, 429), (token, path, answer)
        assert status == 429
        assert not served.seen
        status, answer = send(served.url, None, None, "/v1/health", method="GET")
        assert status == 200 and answer["status"] == "ok"
        # Others are not kept out by wrong tokens.
        assert send(served.url, BEGIN)[0] == 200


def test_more_episodes_than_there_are_places():
    with opened(places=2) as served:
        for name in "ab":
            assert send(served.url, {**BEGIN, "episode": name})[0] == 200
        status, answer = send(served.url, {**BEGIN, "episode": "c"})
        assert (status, answer["code"]) == (503, "full")


def test_too_many_requests_over_one_connection(served, monkeypatch):
    monkeypatch.setattr("callboard.launch.serving.connections._REQUESTS_A_SECOND", 3.0)
    client = PolicyClient(served.url, TOKEN, patience=0.0)
    with pytest.raises(ServerError, match="too many requests a second"):
        for _ in range(10):
            client.spaces()


def test_actions_of_the_client(served):
    client = PolicyClient(served.url, TOKEN)
    chosen = {"turn": 2, "force": np.array([1.0, 0.0], np.float32)}
    episode = client.begin(FIRST, chosen)
    assert episode.action["turn"] == 2
    np.testing.assert_array_equal(episode.action["force"], chosen["force"])
    episode.cut_off()
    with opened(refusal="this agent learns from its own actions only") as other:
        with pytest.raises(ServerError, match="its own actions") as caught:
            PolicyClient(other.url, TOKEN).begin(FIRST, chosen)
        assert caught.value.code == "bad_request"


def test_a_client_whose_connection_breaks_repeats_its_request(served):
    client = PolicyClient(served.url, TOKEN)
    episode = client.begin(FIRST)
    client._connection.sock.shutdown(socket.SHUT_RDWR)
    before = served.episodes.environment_steps
    episode.step(1.0, FIRST)
    assert served.episodes.environment_steps == before + 1
    # The answer is lost.
    episode._sequence -= 1
    episode.step(1.0, FIRST)
    assert served.episodes.environment_steps == before + 1
    episode.cut_off()


def test_a_server_that_is_not_there():
    with pytest.raises(ServerUnreachable):
        PolicyClient("http://127.0.0.1:9", TOKEN, patience=0.0).health()
    with pytest.raises(ValueError, match="no address"):
        PolicyClient("127.0.0.1:8650", TOKEN)


def test_a_server_that_closes_keeps_no_client_waiting():
    with opened(answers=False) as served, concurrent.futures.ThreadPoolExecutor() as pool:
        client = PolicyClient(served.url, TOKEN, patience=0.0)
        waiting = pool.submit(client.begin, FIRST)
        assert wait_until(lambda: served.episodes._batcher._pending, 5.0)
        begun = time.monotonic()
        served.episodes.close()
        served.door.close()
        assert time.monotonic() - begun < 5.0
        assert isinstance(waiting.exception(5.0), ServerError | ServerUnreachable)


def test_a_request_that_cannot_be_answered_yet_is_to_be_sent_again(monkeypatch):
    monkeypatch.setattr("callboard.launch.nodes.inference.http_door.ANSWER_SECONDS", 0.1)
    with opened(answers=False) as served:
        status, answer = send(served.url, BEGIN)
        assert (status, answer["code"]) == (503, "wait")
        served.episodes.serve_once()
        assert send(served.url, BEGIN)[0] == 503 and served.episodes.open_episodes == 1


def test_an_address_that_is_taken():
    with opened() as served, pytest.raises(CallboardError, match="cannot listen"):
        served.door.start()


def test_tls(tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    with opened(tls=tls_context(str(certificate), str(key))) as served:
        assert served.url.startswith("https://")
        assert PolicyClient(served.url, TOKEN, str(certificate)).begin(FIRST).action["turn"] == 3
        with pytest.raises(ssl.SSLCertVerificationError):
            PolicyClient(served.url, TOKEN).health()
        with pytest.raises(ServerUnreachable):
            PolicyClient(served.url.replace("https", "http"), TOKEN, patience=0.0).health()


@pytest.mark.parametrize("certificate, key", [(None, "key.pem"), ("none.pem", None), (__file__, None)])
def test_certificates_that_cannot_be_used(certificate, key):
    with pytest.raises(CallboardError):
        tls_context(certificate, key)
