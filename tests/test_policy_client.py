"""The client alone: with every Python of this machine, and without NumPy."""

import os
import pathlib
import subprocess

import pytest
from open_door import TOKEN, opened
from other_interpreters import interpreters

from callboard.policy_client import PolicyClient

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("policy_client", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
client = module.PolicyClient(sys.argv[2], sys.argv[3])
observation = {"image": [[[0], [1], [2]], [[3], [4], [5]]], "speed": (0.5, -2.0), "gear": 3}
episode = client.begin(observation)
assert episode.action["turn"] == 3, episode.action
assert [round(float(force), 3) for force in episode.action["force"]] == [0.05, -0.2]
episode.step(1.0, observation)
episode.end(1.0, observation, terminated=True)
try:
    episode.step(1.0, observation)
except module.EpisodeLost as error:
    print(sys.version_info[:2], error.code)
"""


@pytest.mark.slow
def test_it_needs_no_package_and_runs_with_every_python():
    found = interpreters()
    assert 10 in found
    with opened() as served:
        for version, python in found.items():
            # -I and -S: no installed packages, so that NumPy is not found.
            done = subprocess.run(
                [python, "-I", "-S", "-c", SCRIPT, ROOT / "policy_client.py", served.url, TOKEN],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": ""},
            )
            assert done.stdout.strip() == f"(3, {version}) ended", done.stderr


@pytest.mark.parametrize(
    "bad", ["127.0.0.1:8650", "ftp://127.0.0.1", "http://", "http://[::1", "http://a:b", "http://a:0", "http://a:99999"]
)
def test_addresses_that_are_none(bad):
    with pytest.raises(ValueError, match="no address"):
        PolicyClient(bad, TOKEN)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"token": "secret\nX: y"}, "the token has other letters than the server's: give"),
        ({"token": "s\u00e9cret"}, "the token has other letters than the server's: give"),
        ({"timeout": 0}, "timeout must be above 0, and at most 1e.06 seconds, not 0"),
        ({"timeout": float("inf")}, "timeout must be above 0, and at most 1e.06 seconds, not inf"),
    ],
)
def test_arguments_that_no_request_can_be_sent_with(given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        PolicyClient("http://127.0.0.1:8650", **{"token": TOKEN, **given})


def test_a_token_may_be_the_text_of_its_file():
    with opened() as served:
        assert PolicyClient(served.url, f"{TOKEN}\n").spaces()["action"]
