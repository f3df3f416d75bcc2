"""A monitor in another process."""

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.run_outcome import Outcome
from callboard.launch.launchers.supervision.remote_monitor import MonitorClient, MonitorServer


def test_a_monitor_in_another_process_receives_everything():
    class Kept:
        def __init__(self):
            self.calls = []

        def status(self, status):
            self.calls.append(status)

        def notify(self, text):
            self.calls.append(text)

    kept = Kept()
    server = MonitorServer(kept)
    client = MonitorClient(server.address)
    client.status({"environment_steps": 3})
    client.notify("a line")
    assert kept.calls == [{"environment_steps": 3}, "a line"]
    assert not server.outcome.ended
    client.complete(Outcome(reason="over", exit_code=143))
    assert (server.outcome.reason, server.outcome.exit_code) == ("over", 143)
    server.close()


def test_the_error_of_a_monitor_arrives_in_every_call():
    class Broken:
        calls = 0

        def status(self, status):
            Broken.calls += 1
            raise CallboardError("the disk of the display is full")

        def notify(self, text):
            Broken.calls += 1

    server = MonitorServer(Broken())
    client = MonitorClient(server.address)
    for call in (lambda: client.status({}), lambda: client.notify("a line")):
        with pytest.raises(CallboardError, match="the disk of the display is full"):
            call()
    assert Broken.calls == 1
    client.complete(Outcome(reason="over"))
    assert server.outcome.ended
    server.close()


def test_what_a_server_that_is_gone_cannot_receive_is_dropped(monkeypatch, caplog):
    monkeypatch.setattr("callboard.launch.launchers.supervision.remote_monitor._CALL_SECONDS", 0.1)
    server = MonitorServer(None)
    client = MonitorClient(server.address)
    server.close()
    client.notify("a line")
    client.complete(Outcome(reason="over"))
    assert not server.outcome.ended
    assert "the launcher does not answer" in caplog.text
    # No call waits for a process that has ended.
    caplog.clear()
    MonitorClient(server.address, is_there=lambda: False).notify("a line")
    assert not caplog.messages
