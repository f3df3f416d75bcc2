"""The settings of a policy server, and what a run with one cannot have."""

import importlib.util
import pathlib

from ...environments.external.spaces_only import EXTERNAL_PREFIX
from ...errors import CallboardError
from ...messages.install_commands import install_command
from ..serving.access_token import read_token
from ..serving.server_address import bind, parse_address, tls_context
from .parts.acting_part import ActingPart
from .parts.placement_part import ServerPart

_ONLY_WITH_SERVER = (
    "spaces",
    "policy_server_silence",
    "policy_server_token_file",
    "policy_server_certificate",
    "policy_server_key",
)


def check_policy_server(server: ServerPart, acting: ActingPart) -> None:
    """Rejects settings that a run with a policy server cannot have, and those that only such a run has.

    Raises:
      CallboardError: names the setting and what to do.
    """
    given = [name for name in _ONLY_WITH_SERVER if getattr(server, name) != getattr(ServerPart, name)]
    external = isinstance(acting.env, str) and acting.env.startswith(EXTERNAL_PREFIX)
    if server.policy_server is None:
        if given or external:
            name = given[0] if given else f"env {EXTERNAL_PREFIX}"
            raise CallboardError(f"{name} is for simulators that connect: set policy_server, such as 127.0.0.1:8650")
        return
    if importlib.util.find_spec("aiohttp") is None:
        raise CallboardError(f"policy_server needs aiohttp: {install_command('callboard[policy-server]')}")
    parse_address(server.policy_server)
    tls_context(server.policy_server_certificate, server.policy_server_key)
    if server.policy_server_token_file is not None:
        read_token(pathlib.Path(server.policy_server_token_file))
    if server.spaces is not None and acting.env != f"{EXTERNAL_PREFIX}{server.spaces}":
        raise CallboardError("env and spaces both define the spaces: leave spaces out")
    refused = {
        "inference central": acting.inference != "local",
        "policies": bool(acting.policies),
        "env_previous_inputs": acting.env_previous_inputs,
        "learners above 1": acting.learners > 1,
        "episode_metrics and callbacks of episodes": acting.watches_episodes,
        "curriculum": bool(acting.curriculum),
    }
    for name, is_set in refused.items():
        if is_set:
            raise CallboardError(f"a policy server does not step its simulators, and has no {name}: leave it out")


def check_address_is_free(server: ServerPart) -> None:
    """Rejects an address of the policy server that is taken, before anything starts.

    Raises:
      CallboardError: another program listens there, or this machine does not have the address.
    """
    if server.policy_server is not None:
        bind(parse_address(server.policy_server)).close()
