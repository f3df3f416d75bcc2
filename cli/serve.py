"""`callboard serve`: serves the policy of a run over HTTP."""

import contextlib
import importlib.util
import pathlib
import secrets
import threading
from collections.abc import Sequence

from ..errors import CallboardError, printable_lines
from ..launch.experiments.settings import read_settings
from ..launch.run_directory.chosen_weights import chosen_checkpoint
from ..launch.run_directory.found_runs import parse_run_reference
from ..launch.run_directory.layout import RunDirectory
from ..launch.run_directory.remote_storage import is_url
from ..launch.serving.access_token import read_token
from ..launch.serving.server_address import bind, parse_address, tls_context
from ..messages.install_commands import install_command
from .command_parser import CommandParser
from .run_arguments import add_trust

_PLACES = 256
_SILENCE_SECONDS = 300.0


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard serve",
        description="Serves the policy of a run over HTTP, and loads newer weights as the run writes them.",
    )
    parser.add_argument("run", help="the run directory, a path or a URL; RUN@latest or RUN@STEP for other weights")
    parser.add_argument("--listen", default="127.0.0.1:8650", metavar="HOST:PORT", help="address (127.0.0.1:8650)")
    parser.add_argument("--token-file", type=pathlib.Path, help="file with the token; by default a new one is shown")
    parser.add_argument("--certificate", help="PEM file of a certificate, for HTTPS")
    parser.add_argument("--key", help="PEM file of its private key")
    parser.add_argument("--places", type=int, default=_PLACES, metavar="N", help=f"open episodes at a time ({_PLACES})")
    parser.add_argument(
        "--silence",
        type=float,
        default=_SILENCE_SECONDS,
        metavar="SECONDS",
        help=f"time without a request after which an episode is forgotten ({_SILENCE_SECONDS:g})",
    )
    parser.add_argument("--mode", choices=("greedy", "sampled"), help="best or sampled actions; as in evaluations")
    parser.add_argument("--epsilon", type=float, help="rate of random actions, for agents that learn action values")
    parser.add_argument("--seed", type=int, help="seed of sampled actions; the run's own by default")
    add_trust(parser)
    known = parser.parse_args(arguments)
    if not 1 <= known.places <= 100_000 or not 0 < known.silence <= 10**8:
        raise CallboardError("--places must be from 1 to 100,000, and --silence above 0")
    if importlib.util.find_spec("aiohttp") is None:
        raise CallboardError(f"callboard serve needs aiohttp: {install_command('callboard[policy-server]')}")
    address, tls = parse_address(known.listen), tls_context(known.certificate, known.key)
    token = secrets.token_urlsafe(24) if known.token_file is None else read_token(known.token_file)
    reference = parse_run_reference(known.run)
    # Mistakes are reported before TensorFlow is imported, and the address is taken.
    read_settings(reference.run, trust=known.trust)
    if not is_url(reference.run):
        chosen_checkpoint(RunDirectory(pathlib.Path(reference.run)), reference.checkpoint, print)
    bound = bind(address)
    from ..launch.nodes.inference.http_door import HttpDoor
    from ..launch.trained.served_policy import ServedPolicy

    def notify(text: str) -> None:
        with contextlib.suppress(OSError):
            print(printable_lines(text), flush=True)

    policy = ServedPolicy(
        reference, known.places, known.silence, known.mode, known.epsilon, known.seed, known.trust, notify
    )
    door = HttpDoor(
        policy.episodes, policy.wire, address, token, tls, known.places, health=policy.health, acts_once=True
    )
    door.start(bound)
    shown = f"token {token}" if known.token_file is None else f"its token is in {known.token_file}"
    notify(f"serves {reference.run}, {policy.loaded}, at {address.url(tls is not None)}; {shown}")
    if not address.is_loopback and tls is None:
        notify("the token and all data are sent unencrypted: give --certificate, or listen at 127.0.0.1")
    try:
        policy.serve(threading.Event())
    finally:
        policy.episodes.close()
        door.close()
    return 0
