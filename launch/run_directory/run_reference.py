"""References to the weights of a run: `runs/x`, `runs/x@latest`, or the path of a checkpoint."""

import os
import re
from typing import NamedTuple

from ...errors import CallboardError, path_text
from .layout import is_checkpoint_name
from .remote_storage import is_url

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
    path = path_text(text, "run")
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
