"""Chooses the directory of a run that is about to start or to be resumed, and checks it.  Writes nothing."""

import dataclasses
import datetime
import os
import pathlib
import secrets
import unicodedata

from ...agents.agent_names import agent_name
from ...environments import environment_text
from ...errors import CallboardError, check_working_directory
from ...messages.caller_words import argument
from ..plain_names import in_command
from ..run_directory.layout import RunDirectory
from ..run_directory.replaced_run import check_may_be_replaced, has_learned
from ..run_directory.run_lock import check_not_running
from .parts.environment_part import EnvironmentPart
from .parts.output_part import DirectoryPart

_MOST_LETTERS = 80
"""Of the environments' names in the name of a directory."""
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_RANDOM_LETTERS = 6
_NO_LETTERS = ("Cc", "Cs", "Zl", "Zp")
"""Categories of what is no letter of a path: control codes, parts of letters, separators of lines."""
_PROTOCOLS = ("s3", "gs", "gcs", "az", "abfs", "abfss", "adl", "hdfs", "http", "https", "file", "memory")
"""Those of URLs: a path that begins with one is a mistake."""
_LONGEST_BELOW = 512
"""Bytes of the longest path in a run directory."""


def find_run_directory(chosen: DirectoryPart, resume: bool, agent: str = "", overwrite: bool = False) -> RunDirectory:
    """Returns the directory to run in; writes nothing yet.

    Args:
      chosen: the directory, or what a new one is named for.
      resume: whether the directory must contain a run; otherwise it must not.
      agent: name of the agent, if that is None.
      overwrite: whether a new run replaces one that is in the directory.

    Raises:
      CallboardError: the directory already contains a run, or none to resume.
    """
    path = chosen.run_dir
    if path == "":
        raise CallboardError("run_dir is empty: name a directory, or leave it out")
    if path is None:
        if resume:
            raise CallboardError("resume needs the run's directory; name it with --run-dir")
        check_can_be_made(pathlib.Path("runs"))
        name = (agent or agent_name(chosen.agent)).rpartition(":")[2].lower()
        path = default_run_directory(chosen, name)
    check_can_be_made(pathlib.Path(path))
    directory = RunDirectory(pathlib.Path(path).absolute())
    check_not_running(directory.lock())
    return check_state(directory, path, resume, overwrite)


def check_state(
    directory: RunDirectory, name: str | pathlib.Path, resume: bool, overwrite: bool = False
) -> RunDirectory:
    """Rejects a directory without a run to resume or, for a new run, one with a run that has learned something.

    Args:
      directory: the directory.
      name: the directory as the user named it.
      resume: whether it must contain a run.
      overwrite: whether a new run may replace any other.

    Returns:
      The directory, which says whether the new run replaces the files of another.
    """
    if resume and not directory.experiment.exists():
        raise CallboardError(f"there is no run to resume in {name}: it has no experiment.yaml")
    if resume and directory.card.exists():
        raise CallboardError(
            f"{name} is a policy of a zoo, whose learner cannot be resumed: begin a new run in another directory with "
            f"{argument('init_from', in_command(f'{name}@best'))}"
        )
    if overwrite and resume:
        raise CallboardError("a run is either resumed or overwritten; leave out one of resume and overwrite")
    if resume or not directory.experiment.exists():
        return dataclasses.replace(directory, replaces=False)
    if has_learned(directory) and not overwrite:
        raise CallboardError(
            f"there is already a run in {name}; continue it with {argument('resume')}, replace it with "
            f"{argument('overwrite')}, or name another directory"
        )
    check_may_be_replaced(directory, name)
    return dataclasses.replace(directory, replaces=True)


def default_run_directory(environment: EnvironmentPart, agent_name: str) -> pathlib.Path:
    """Returns `runs/<agent>-<environment>-<time>-<letters>`, the default for runs that name no directory."""
    words = f"{agent_name}-{environment_text(environment.env)[:_MOST_LETTERS]}-{unique_ending()}"
    return pathlib.Path("runs") / "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in words)


def unique_ending() -> str:
    """Returns the time and random letters, so that runs that start in the same second have different names."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"{now}-{''.join(secrets.choice(_LETTERS) for _ in range(_RANDOM_LETTERS))}"


def check_can_be_made(path: pathlib.Path) -> None:
    """Rejects a directory that cannot be made or written to."""
    if "\0" in str(path):
        raise CallboardError(f"the run directory {str(path)!r} has a null character in its name")
    protocol, colon, _ = str(path).partition(":/")
    if colon and protocol in _PROTOCOLS:
        raise CallboardError(f"the run directory {str(path)!r} is no URL: write {protocol}:// with two slashes")
    if (home := os.path.expanduser(path)) != str(path):
        raise CallboardError(f"the run directory {str(path)!r} begins with ~: write {home!r} in full")
    check_working_directory()
    if any(unicodedata.category(letter) in _NO_LETTERS for letter in str(path.absolute())):
        raise CallboardError(
            f"the run directory {str(path)!r} has control codes, or bytes that are no UTF-8, in its path; name another"
        )
    try:
        existing = next(part for part in (path.absolute(), *path.absolute().parents) if os.path.lexists(part))
        if not existing.exists():
            raise CallboardError(
                f"the run directory {path} cannot be made: {existing} is a symbolic link to {os.readlink(existing)}, "
                "which does not exist; make that directory, or name another one"
            )
        if existing == path.absolute() and not existing.is_dir():
            raise CallboardError(f"the run directory {path} is a file; name another one")
        if not existing.is_dir():
            raise CallboardError(f"the run directory {path} cannot be made: {existing} is a file")
        if not os.access(existing, os.W_OK | os.X_OK):
            is_read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
            why = f"{existing} is on a read-only file system" if is_read_only else f"you may not write to {existing}"
            raise CallboardError(f"the run directory {path} cannot be written: {why}")
        longest = max(len(os.fsencode(part)) for part in path.absolute().parts)
        if longest > os.pathconf(existing, "PC_NAME_MAX"):
            raise CallboardError(f"the run directory has a name of {longest} bytes; use a shorter one")
        whole = len(os.fsencode(path.absolute()))
        if whole + _LONGEST_BELOW > os.pathconf(existing, "PC_PATH_MAX"):
            raise CallboardError(f"the run directory has a path of {whole:,} bytes; use a shorter one")
    except OSError as error:
        raise CallboardError(f"the run directory {path} cannot be used: {error}") from error
