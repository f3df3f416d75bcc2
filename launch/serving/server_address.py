"""Where a policy server listens, and its certificate."""

import ipaddress
import os
import socket
import ssl
from typing import NamedTuple

from ...errors import CallboardError


class ServerAddress(NamedTuple):
    """Where a policy server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def url(self, is_encrypted: bool) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if is_encrypted else 'http'}://{host}:{self.port}"


def parse_address(text: str) -> ServerAddress:
    """Parses `HOST:PORT`, or `[ADDRESS]:PORT` of IPv6.

    Raises:
      CallboardError: the text is something else.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
    if not (colon and host and 1 <= number <= 65535):
        raise CallboardError(f"policy server {text!r} is no address: write HOST:PORT, such as 127.0.0.1:8650")
    return ServerAddress(host, number)


def bind(address: ServerAddress) -> socket.socket:
    """Returns a socket with an address, which does not listen yet.

    Raises:
      CallboardError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(tuple(address))
    except OSError as error:
        bound.close()
        raise CallboardError(
            f"the policy server cannot listen at {address.host}:{address.port}: {error.strerror}; choose another "
            "address or port"
        ) from error
    return bound


def tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Returns the TLS settings of a server; None if it has no certificate.

    Args:
      certificate: path of the certificate with its chain, as PEM.
      key: path of its private key; None if the certificate's file holds it.

    Raises:
      CallboardError: a file cannot be read, or key and certificate do not belong together.
    """
    if certificate is None:
        if key is not None:
            raise CallboardError("a private key was given without its certificate: give both, or neither")
        return None
    for path in (certificate, key):
        if path is not None and not os.access(path, os.R_OK):
            raise CallboardError(f"the file {path} of the certificate cannot be read")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password here, OpenSSL would read one from the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise CallboardError(
            f"{certificate} and its private key cannot be used: give PEM files that belong together, without a password"
        ) from error
    return context
