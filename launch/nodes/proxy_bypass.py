"""Direct connections between the nodes of a run, on machines whose environment variables name an HTTP proxy.

gRPC sends its calls through the proxy of `grpc_proxy`, `https_proxy` or `http_proxy`, even calls to this machine,
unless `no_grpc_proxy` (or else `no_proxy`) lists the host.  It reads the variables when it opens a channel.
"""

import os

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def bypass_proxies(*hosts: str) -> None:
    """Connects to this machine and to `hosts` without a proxy; later calls add to earlier ones."""
    if not any(os.environ.get(name) for name in _PROXIES):
        return
    direct = [host for host in _direct_hosts().split(",") if host]
    missing = [host for host in (*_LOCAL, *hosts) if host not in direct]
    if missing:
        os.environ["no_grpc_proxy"] = ",".join([*direct, *missing])


def _direct_hosts() -> str:
    return os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""
