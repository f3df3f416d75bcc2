"""What a run writes when it begins, which is once nothing can refuse it any more."""

import contextlib
from collections.abc import Iterator

from ...data import CallboardError
from ..experiment import Run
from ..settings import write_experiment
from ..temporary_files import temporary_files_in
from .remote_storage import Storage


@contextlib.contextmanager
def begun(run: Run) -> Iterator[None]:
    """Makes the run directory and writes the experiment; temporary files are in it as long as this lasts.

    A launcher enters it when all that could refuse the run has been looked at, and before it starts a node: a start
    that is refused leaves nothing behind.

    Raises:
      CallboardError: the directory cannot be written.
    """
    directory = run.directory
    try:
        directory.create()
        write_experiment(run.experiment, directory.experiment)
    except OSError as error:
        raise CallboardError(f"the run directory {directory.path} cannot be written: {error.strerror}") from error
    if directory.url:
        Storage(directory.url).store(directory.experiment.name, directory.path)
    with temporary_files_in(directory.temporary):
        yield
