"""Ports that are reserved before a server binds them."""

import errno
import socket

import pytest
import reverb

from callboard.launch.processes.ports import RAY_PORTS, has_ipv6, reserve, reserve_among, reserve_any


def test_a_server_can_listen_on_a_reserved_port():
    for reserved in (reserve_any(), reserve_among(RAY_PORTS)):
        server = reverb.Server([reverb.Table.queue("queue", 1)], port=reserved.port)
        assert reverb.Client(f"localhost:{reserved.port}").server_info(timeout=5).keys() == {"queue"}
        server.stop()
        reserved.release()


def test_ports_for_ray_are_above_those_of_its_workers():
    reserved = reserve_among(RAY_PORTS)
    assert 20_000 <= reserved.port < 32_768
    reserved.release()


def test_a_port_on_which_somebody_listens_is_left_to_them():
    with socket.create_server(("", 0)) as listening:
        taken = listening.getsockname()[1]
        with pytest.raises(OSError):
            reserve(taken)
        with pytest.raises(OSError, match=f"all ports from {taken} to {taken} of this machine are taken"):
            reserve_among(range(taken, taken + 1))


def test_of_some_ports_none_is_given_twice():
    free = reserve_any()
    port = free.port
    free.release()
    first = reserve_among(range(port, port + 1))
    with pytest.raises(OSError):
        reserve_among(range(port, port + 1))
    first.release()


def test_a_given_port_is_reserved_again_by_the_host_that_comes_back():
    first = reserve_any()
    again = reserve(first.port)
    assert again.port == first.port
    first.release()
    again.release()


@pytest.fixture
def without_ipv6(monkeypatch):
    """A machine whose kernel has no IPv6, as in many containers."""
    create = socket.socket

    def refuse(family=socket.AF_INET, *arguments, **options):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return create(family, *arguments, **options)

    monkeypatch.setattr(socket, "socket", refuse)
    has_ipv6.cache_clear()
    yield
    has_ipv6.cache_clear()


def test_without_ipv6_ports_are_reserved_by_ipv4(without_ipv6):
    assert not has_ipv6()
    reserved = reserve_any()
    server = reverb.Server([reverb.Table.queue("queue", 1)], port=reserved.port)
    assert reverb.Client(f"127.0.0.1:{reserved.port}").server_info(timeout=5).keys() == {"queue"}
    server.stop()
    reserved.release()
