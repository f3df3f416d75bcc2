"""The arguments that name a run and the weights to use."""

import argparse
from collections.abc import Sequence

from ... import environments
from ...errors import CallboardError
from ..experiment import Experiment
from ..experiments.run_checks import check_settings
from ..settings import read_settings


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments `run`, `--checkpoint` and `--trust`."""
    parser.add_argument("run", help="the run directory, a path or a URL")
    parser.add_argument(
        "--checkpoint", type=_checkpoint, default="best", help="weights: best (default), latest, or a learner step"
    )
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds the argument `--trust`."""
    parser.add_argument(
        "--trust", action="store_true", help="take the run also if it belongs to another user: its settings run code"
    )


def read_run(run: str, options: Sequence[str] = (), trust: bool = False) -> Experiment:
    """Returns the experiment of a run directory; errors in it are reported before TensorFlow is imported.

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
    check_settings(settings.without_agent())
    environments.check(settings.of_run["env"], settings.of_run.get("env_options"))
    return settings.experiment()


def _checkpoint(text: str) -> str:
    if text not in ("best", "latest") and not (text.isascii() and text.isdecimal()):
        raise CallboardError(f"--checkpoint must be best, latest or a learner step, not {text!r}")
    return text
