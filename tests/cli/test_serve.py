"""The command that serves a run: what it prints, its options, and how it ends."""

import re
import signal

import pytest
from open_door import free_port
from untrained_runs import write_run

from callboard.cli.serve import main
from callboard.errors import CallboardError
from callboard.policy_client import PolicyClient


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_it_serves_until_it_is_stopped(tmp_path, start, number, code):
    write_run(tmp_path / "run", steps=(5,))
    run = start("serve", "run@latest", "--listen", f"127.0.0.1:{free_port()}")
    run.wait_until(lambda: run.process.poll() is not None or " at http://" in run.text())
    url, token = re.search(r"at (\S+); token (\S+)", run.text()).groups()
    episode = PolicyClient(url, token).begin([0.0, 0.1, 0.0, 0.1])
    assert episode.action in (0, 1)
    run.signal(number, "launcher")
    assert run.wait() == code
    assert not run.leftovers()


@pytest.mark.parametrize(
    "options, message",
    [
        (["none"], "no run in none"),
        (["none@newest"], "unknown checkpoint"),
        (["none", "--listen", "8650"], "write HOST:PORT"),
        (["none", "--token-file", "none"], "cannot be read"),
        (["none", "--key", "none"], "without its certificate"),
        (["none", "--places", "0"], "--places must be"),
        (["none", "--tokenfile", "x"], "did you mean '--token-file'"),
        ([], "needs the run directory"),
    ],
)
def test_mistakes(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallboardError, match=message):
        main(options)
