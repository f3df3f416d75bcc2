"""The policy with the best evaluation so far, and its predecessor."""

import contextlib
import logging
import math
import pathlib
from collections.abc import Callable, Iterator

from ...agents.agent import Policy
from ...errors import CallboardError
from ...files.atomic_files import file_draft, link_or_copy, set_aside
from .layout import RunDirectory
from .policy_weights import read_policy, write_weights

_logger = logging.getLogger(__name__)


class BestPolicy:
    """The best policy of one run.  Its predecessor is kept too, and replaces it if it is damaged.

    Args:
      run_directory: the run directory.
      notify: receives a line about a damaged file.
      read_only: whether a damaged file stays where it is.
    """

    def __init__(
        self,
        run_directory: RunDirectory,
        notify: Callable[[str], None] = _logger.warning,
        read_only: bool = False,
    ):
        self._path = run_directory.best_policy
        self._before = run_directory.best_policy_before
        self._notify = notify
        self._read_only = read_only

    def path(self) -> pathlib.Path | None:
        """Returns the file of the best policy, or of its predecessor if it is damaged; None if there is none."""
        for path in (self._path, self._before):
            if not path.exists():
                continue
            try:
                read_policy(path)
                return path
            except CallboardError:
                kept = None if self._read_only else set_aside(path)
                self._notify(
                    f"the best policy {path.name} is damaged and not used"
                    + (f"; it is kept as {kept.name}" if kept is not None else "")
                )
            except FileNotFoundError:
                pass
        return None

    def mean_return(self) -> float:
        """Returns the mean return of the best policy; -inf if there is none.

        Raises:
          CallboardError: its file does not say it.
        """
        path = self.path()
        try:
            return -math.inf if path is None else float(read_policy(path).further["mean_return"])
        except (KeyError, TypeError, ValueError) as error:
            raise CallboardError(f"{path} has no mean return; replace it by a copy") from error

    @contextlib.contextmanager
    def draft(self, policy: Policy, mean_return: float, learner_step: int) -> Iterator[None]:
        """Writes a policy, which becomes the best at the end of the block.

        Raises:
          OSError: the file could not be written; the best policy is unchanged.
        """
        with file_draft(self._path) as draft:
            write_weights(draft, policy, mean_return=mean_return, learner_step=learner_step)
            yield
            with contextlib.suppress(FileNotFoundError), file_draft(self._before) as before:
                before.unlink()
                link_or_copy(self._path, before)
