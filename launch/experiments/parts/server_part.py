"""The policy server, at which external simulators connect."""

import dataclasses

from .quantities import Seconds


@dataclasses.dataclass(frozen=True)
class ServerPart:
    """The policy server, at which external simulators connect.

    Attributes:
      policy_server: address `HOST:PORT` at which simulators connect, in place of actors, see
        docs/guides/external_simulators.md; `actors * envs_per_actor` episodes can be open at a time.  None for no
        server.
      spaces: path of a JSON file with the spaces of those simulators, in place of `env`; the run has then no evaluator.
      policy_server_silence: seconds without a request after which a simulator's episode is cut off.
      policy_server_token_file: file with the token that simulators send; None makes one, `policy_server_token` in the
        run directory.
      policy_server_certificate: PEM file of a certificate, with which the server speaks HTTPS; None for HTTP.
      policy_server_key: PEM file of its private key; None if the certificate's file holds it.
    """

    policy_server: str | None = None
    spaces: str | None = None
    policy_server_silence: Seconds = 60.0
    policy_server_token_file: str | None = None
    policy_server_certificate: str | None = None
    policy_server_key: str | None = None
