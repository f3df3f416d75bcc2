"""Metrics for Prometheus."""

import socket
import urllib.request

import pytest

from callboard.errors import CallboardError
from callboard.launch.loggers.metric_logger import LoggedRun
from callboard.launch.loggers.prometheus_logger import PrometheusLogger, check_prometheus

pytest.importorskip("prometheus_client")


def test_the_newest_row_is_served_until_the_end(tmp_path):
    logger = PrometheusLogger("127.0.0.1", 0)
    run = LoggedRun(tmp_path / "x", {})
    logger.start(run)
    url = f"http://127.0.0.1:{logger.port}/metrics"

    def served():
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
            return answer.read().decode()

    try:
        assert "callboard_" not in served()
        for steps in (10, 20):
            logger.write({"environment_steps": steps, "learner/loss": 0.5, "replay/fill_0": float("nan")})
        lines = served().splitlines()
        assert 'callboard_environment_steps{run="x"} 20.0' in lines
        assert 'callboard_learner_loss{run="x"} 0.5' in lines
        assert 'callboard_replay_fill_0{run="x"} NaN' in lines
        with socket.create_connection(("127.0.0.1", logger.port)):
            with pytest.raises(
                CallboardError, match="127.0.0.1:.* Address already in use; set another prometheus_port"
            ):
                check_prometheus("127.0.0.1", logger.port)
    finally:
        logger.close()
    check_prometheus("127.0.0.1", logger.port)


def test_names_have_letters_that_prometheus_accepts_and_no_two_are_the_same(tmp_path):
    logger = PrometheusLogger("127.0.0.1", 0)
    names = ["episode/distance-to.goal", "episode/größe", "episode/a b", "episode/a/b", 'episode/"\n{}']
    logger.write({name: 1.0 for name in names})
    found = [family.name for family in logger.collect()]
    assert "callboard_episode_distance_to_goal" in found and "callboard_episode_gr_xf6__xdf_e" in found
    assert len(set(found)) == 5 and all(name.isascii() and name.isidentifier() for name in found)


@pytest.mark.parametrize("host", ["192.0.2.77", "no-such-host.invalid", ""])
def test_an_address_of_no_interface_is_refused(host):
    if host:
        with pytest.raises(CallboardError, match="cannot be served at"):
            check_prometheus(host, 9100)
    check_prometheus(host, None)
