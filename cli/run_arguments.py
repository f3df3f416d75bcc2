"""The arguments that name a run and the weights to use."""

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence

from .. import environments
from ..errors import CallboardError, printable_lines
from ..launch.experiments.run_checks import check_settings
from ..launch.experiments.settings import Settings, read_settings
from ..launch.run_directory.chosen_weights import chosen_checkpoint
from ..launch.run_directory.found_runs import RunReference, parse_run_reference
from ..launch.run_directory.layout import RunDirectory
from ..launch.run_directory.remote_storage import local_copy

_OF_TRAINING = (
    "callbacks",
    "curriculum",
    "init_from",
    "init_parts",
    "loggers",
    "prometheus_port",
    "stop_when",
    "policy_server_token_file",
    "policy_server_certificate",
    "policy_server_key",
)
"""Settings that name code, packages and files that are not needed to play."""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments `run`, `--checkpoint` and `--trust`."""
    parser.add_argument(
        "run", help="the run directory, a path or a URL; RUN@latest, RUN@best or RUN@STEP names its weights too"
    )
    parser.add_argument(
        "--checkpoint",
        type=_checkpoint,
        help="weights: best, latest or a learner step; by default the best, or the latest of a run without evaluations",
    )
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds the argument `--trust`."""
    parser.add_argument(
        "--trust", action="store_true", help="take the run also if it belongs to another user: its settings run code"
    )


def named_reference(known: argparse.Namespace) -> RunReference:
    """Returns the run and the weights that the arguments name."""
    reference = parse_run_reference(known.run)
    if known.checkpoint and reference.checkpoint:
        raise CallboardError(f"{known.run} and --checkpoint {known.checkpoint} both name weights; leave one out")
    return reference._replace(checkpoint=known.checkpoint) if known.checkpoint else reference


@contextlib.contextmanager
def chosen_run(reference: RunReference, of_all: bool = False) -> Iterator[tuple[RunDirectory, str]]:
    """Gives the directory of a run, which exists, and the checkpoint to load, before TensorFlow is imported.

    Args:
      reference: the run; a line says so if it has no best weights and the latest are taken.
      of_all: whether weights of all its policies are meant, not of one.
    """
    with local_copy(reference.run, reference.checkpoint) as directory:
        yield directory, chosen_checkpoint(directory, reference.checkpoint, notify, reference.run, of_all)


def notify(text: str) -> None:
    """Prints a line beside results, which are alone on stdout."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def read_run(run: str, options: Sequence[str] = (), trust: bool = False) -> Settings:
    """Returns the settings of a run directory for playing; errors in them are reported before TensorFlow is imported.

    What only training uses is left out, so that a run can be played where its callbacks cannot be imported.

    Args:
      run: the run directory, a path or a URL.
      options: options that change its settings.
      trust: whether it may belong to another user.
    """
    if any(option.partition("=")[0] == "--env" for option in options):
        # The options of the run's environment are not those of another one.
        before = read_settings(run, trust=trust).of_run.get("env_options", {})
        options = [*(f"--no-env-options.{name}" for name in before), *options]
    settings = read_settings(run, options, trust)
    played = {name: value for name, value in settings.of_run.items() if name not in _OF_TRAINING}
    settings = dataclasses.replace(settings, of_run=played)
    check_settings(settings.without_agent())
    python = {key: value for key, value in settings.of_run.items() if key == "env_python" and value is not None}
    environments.check(settings.of_run["env"], {**settings.of_run.get("env_options", {}), **python})
    return settings


def _checkpoint(text: str) -> str:
    if text not in ("best", "latest") and not (text.isascii() and text.isdecimal()):
        raise CallboardError(f"--checkpoint must be best, latest or a learner step, not {text!r}")
    return text
