"""The settings of warm starts: where weights come from, and which parts of the network they concern."""

import os
import pathlib
import socket
from collections.abc import Sequence

from ...errors import CallboardError
from ...settings.setting_types import texts_of
from ..run_directory.found_runs import RunReference, parse_run_reference
from ..run_directory.layout import RunDirectory
from ..run_directory.remote_storage import is_url


def parse_source(init_from: str) -> RunReference:
    """Parses `RUN[@best|@latest|@STEP]`; the latest checkpoint by default, since it has all networks.

    Raises:
      CallboardError: it names no run, or the text after `@` is no checkpoint.
    """
    source = parse_run_reference(init_from, "latest")
    if not source.run:
        raise CallboardError(f"init_from {init_from!r} names no run: write RUN, RUN@best or RUN@STEP")
    return source


def absolute_source(init_from: str | None) -> str | None:
    """Returns the setting with an absolute path: nodes and trials may have another working directory."""
    return None if init_from is None else str(parse_source(init_from).absolute())


def check_source_exists(source: RunReference, setting: str = "init_from") -> None:
    """Refuses a source that is a path without a run on this machine.

    Args:
      source: the source.
      setting: where it is named, for messages.

    Raises:
      CallboardError: names the path.
    """
    experiment = RunDirectory(pathlib.Path(source.run)).experiment
    if not is_url(source.run) and not os.path.lexists(experiment):
        raise CallboardError(
            f"there is no run in {source.run} to take weights from ({setting}): it has no {experiment.name} on "
            f"{socket.gethostname()}; with several machines, name one on storage that the first learner's machine "
            "shares, or a URL"
        )


def check_parts(init_from: str | None, init_parts: str | Sequence[str], freeze: str | Sequence[str]) -> None:
    """Checks the settings of a warm start as far as that is possible without the network.

    Raises:
      CallboardError: names the setting.
    """
    for name, setting in (("init_parts", init_parts), ("freeze", freeze)):
        if not all(pattern.strip("/") for pattern in texts_of(setting)):
            raise CallboardError(f"{name} has an empty pattern; name parts of the network, such as 'torso/*'")
    if texts_of(init_parts) and init_from is None:
        raise CallboardError("init_parts needs a run to take the parts from: set init_from, or leave init_parts out")
    if init_from is not None:
        parse_source(init_from)
