"""Connections between nodes where the environment names an HTTP proxy."""

import pytest

from callboard.launch.nodes.proxy_bypass import bypass_proxies


@pytest.fixture
def environment(monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def direct():
    import os

    return os.environ.get("no_grpc_proxy", "").split(",")


def test_without_a_proxy_nothing_is_set(environment):
    bypass_proxies("10.0.0.5")
    assert direct() == [""]


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_this_machine_and_the_hosts_of_a_run_are_reached_directly(environment, name):
    environment.setenv(name, "http://proxy.example:3128")
    bypass_proxies("10.0.0.5")
    bypass_proxies("10.0.0.6")
    bypass_proxies("10.0.0.5")
    assert direct() == ["localhost", "127.0.0.1", "::1", "10.0.0.5", "10.0.0.6"]


def test_hosts_that_the_user_named_stay(environment):
    environment.setenv("http_proxy", "http://proxy.example:3128")
    environment.setenv("no_proxy", "intranet.example,localhost")
    bypass_proxies()
    assert direct() == ["intranet.example", "localhost", "127.0.0.1", "::1"]
