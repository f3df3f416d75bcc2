"""Runs by name, such as `runs/x@latest`, or in a folder, and their files, whether they are here or stored at a URL."""

import contextlib
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CallboardError, named_as, named_path
from .layout import MOST_METRICS_BYTES, RunDirectory, is_checkpoint_name
from .remote_storage import Storage, is_url
from .run_lock import is_locked

_CHECKPOINT = re.compile(r"best|latest|[0-9]+(\.[0-9]+)?", re.ASCII)


class RunReference(NamedTuple):
    """A run, and which of its weights are meant."""

    run: str
    """The run directory, a path or a URL."""
    checkpoint: str
    """`best` by evaluation, `latest`, a learner step, or the name of a checkpoint's directory; "" if none is named."""

    def absolute(self) -> "RunReference":
        """Returns the reference with an absolute path; URLs are kept."""
        return self if is_url(self.run) else self._replace(run=os.path.abspath(self.run))

    def __str__(self) -> str:
        return f"{self.run}@{self.checkpoint}" if self.checkpoint else self.run


def parse_run_reference(text: str | os.PathLike[str], default: str = "") -> RunReference:
    """Parses a reference to weights of a run.

    Args:
      text: a run directory or its URL, which may be followed by `@best`, `@latest` or `@` and a learner step; or a
        directory in its `checkpoints`, such as `runs/x/checkpoints/000000001000`.
      default: the checkpoint, if the reference names none.

    Raises:
      CallboardError: the text after `@` names no checkpoint, or no path can be such.
    """
    path = named_path(text, "run")
    exists = not is_url(path) and os.path.lexists(path)
    run, at, checkpoint = path.rpartition("@")
    if at and run and not exists and "/" not in checkpoint:
        if not _CHECKPOINT.fullmatch(checkpoint):
            raise CallboardError(f"unknown checkpoint {checkpoint!r} in {path}; write @best, @latest or @ and a step")
        return RunReference(run, checkpoint)
    trimmed = path.rstrip("/")
    folder, _, name = trimmed.rpartition("/")
    if is_checkpoint_name(name) and (folder == "checkpoints" or folder.endswith("/checkpoints")):
        above = folder.removesuffix("checkpoints").rstrip("/")
        return RunReference(above or (os.sep if folder.startswith("/") else "."), name)
    return RunReference(path, default)


def find_runs(name: str) -> list[str]:
    """Returns the runs in a folder, at any depth and in natural order, or the folder itself if it is a run.

    `RUN@latest` and `RUN@best` stand for the whole run.

    Raises:
      CallboardError: there are none, or the weights of a learner step are named.
    """
    found = runs_in(name)
    if not found and (named := _run_of_weights(name)):
        if not name.endswith(("@latest", "@best")):
            raise _no_weights(named)
        found = runs_in(named)
    if not found:
        raise CallboardError(f"there is no run in {name or repr('')}: no experiment.yaml is there or below it")
    return found


def runs_in(name: str) -> list[str]:
    """Finds runs as `find_runs` does; returns an empty list if there are none."""
    if is_url(name):
        folders = Storage(name).folders_with("experiment.yaml")
        found = [name.rstrip("/") + ("" if folder == "." else f"/{folder}") for folder in folders]
    else:
        found = list(_runs_below(name))
    return sorted(found, key=_natural)


def no_run(name: str) -> CallboardError:
    """Returns the error for a directory that is no run; it names a run that is in it."""
    text = f"there is no run in {name or repr('')}: it has no experiment.yaml"
    if named := _run_of_weights(name):
        return _no_weights(named)
    if not is_url(name) and os.path.isfile(os.path.join(name, "saved_model.pb")):
        return CallboardError(f"{text}. It is an exported policy: name its run, or read it with callboard.load_policy")
    inside = [] if is_url(name) or not os.path.isdir(name) else runs_in(name)
    return CallboardError(f"{text}; name a run in it, such as {inside[0]}" if inside else text)


@contextlib.contextmanager
def files_of_run(name: str) -> Iterator[tuple[RunDirectory, bool]]:
    """Gives a directory with the experiment and the metrics of a run, and whether the run is running.

    Args:
      name: the run directory, a path or a URL; what is at a URL is fetched.
    """
    if not is_url(name):
        directory = RunDirectory(pathlib.Path(name))
        yield directory, is_locked(directory.lock())
        return
    with tempfile.TemporaryDirectory(prefix="callboard-") as scratch, named_as(scratch, name):
        directory, storage = RunDirectory(pathlib.Path(scratch)), Storage(name)
        for file in (directory.experiment, directory.metrics):
            storage.fetch(file.name, directory.path, MOST_METRICS_BYTES)
        yield directory, storage.exists("lock")


def _runs_below(name: str) -> Iterator[str]:
    """Finds every run once: a link to one that is elsewhere, and none that is below by its own name."""
    found, links = set(), []
    for folder, folders, files in os.walk(name):
        if "experiment.yaml" in files:
            folders.clear()
            found.add(os.path.realpath(folder))
            yield os.path.normpath(folder)
        paths = [os.path.join(folder, each) for each in folders]
        links += [path for path in paths if os.path.islink(path)]
    for path in sorted(links):
        real = os.path.realpath(path)
        if real not in found and os.path.isfile(os.path.join(real, "experiment.yaml")):
            found.add(real)
            yield os.path.normpath(path)


def _run_of_weights(name: str) -> str:
    """Returns the run or the folder of runs whose weights are named, such as by `runs/x@200`; "" for other names."""
    try:
        reference = parse_run_reference(name)
    except CallboardError:
        return ""
    return reference.run if reference.checkpoint and runs_in(reference.run) else ""


def _no_weights(run: str) -> CallboardError:
    return CallboardError(f"the whole run is meant here, not the weights of a step: name {run}")


def _natural(name: str) -> list[tuple[int, str]]:
    """Returns a sorting key with which `seed-2` is before `seed-10`."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
