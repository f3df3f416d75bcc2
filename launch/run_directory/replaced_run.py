"""Runs that a new one in the same directory replaces: whether it may, and the removal of their files."""

import contextlib
import os
import pathlib
import shutil

from ...errors import CallboardError
from ...files.guarded_files import read_json
from .layout import RunDirectory, is_checkpoint_name


def has_learned(directory: RunDirectory) -> bool:
    """Returns whether a run has made a learner step or recorded episodes, which would be lost with its files."""
    parts = [directory, *directory.policies.values()]
    if any(_has_weights(part) or part.recorded.exists() for part in parts):
        return True
    return _learner_steps(directory.counters) != 0


def check_may_be_replaced(directory: RunDirectory, name: str | pathlib.Path) -> None:
    """Rejects a directory whose files are not this user's to remove.

    Args:
      directory: the directory, which contains a run.
      name: the directory as the user named it.

    Raises:
      CallboardError: it belongs to another user, or is stored at a URL.
    """
    if directory.url:
        raise CallboardError(f"the run at {directory.url} cannot be replaced; remove it first, or name another URL")
    if os.geteuid() and directory.path.stat().st_uid != os.geteuid():
        raise CallboardError(f"the run in {name} belongs to another user; name another directory")


def remove_run(directory: RunDirectory) -> None:
    """Removes what a run has written in its directory, and leaves everything else.

    `experiment.yaml` goes last, so that a removal that was interrupted is finished by the next start.

    Raises:
      OSError: a file could not be removed.
    """
    for path in directory.written:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    directory.resume()
    directory.experiment.unlink(missing_ok=True)


def _has_weights(directory: RunDirectory) -> bool:
    with contextlib.suppress(OSError):
        if any(is_checkpoint_name(path.name) or path.suffix == ".npz" for path in directory.checkpoints.iterdir()):
            return True
    return bool(directory.snapshots_of("")) or any(directory.snapshots.glob("*.npz"))


def _learner_steps(counters: pathlib.Path) -> int:
    """Returns the learner steps that a file of counters knows of; -1 if it cannot be read."""
    try:
        sources = read_json(counters)
        return sum(int(count) for counts in sources.values() for name, count in counts.items() if _is_steps(name))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, AttributeError, TypeError):
        return -1


def _is_steps(name: str) -> bool:
    return name.rpartition("/")[2] == "learner_steps"
