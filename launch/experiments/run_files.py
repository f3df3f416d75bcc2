"""Writes the files of a new run, once all checks have passed."""

import contextlib
from collections.abc import Iterator

from ...environments.batches.spec_files import format_spec
from ...errors import CallboardError
from ...files.atomic_files import write_file
from ..processes.temporary_files import temporary_files_in
from ..run_directory.remote_storage import Storage
from ..run_directory.replaced_run import remove_run
from .checked_run import Run
from .settings import write_experiment


@contextlib.contextmanager
def begun(run: Run) -> Iterator[None]:
    """Makes the run directory and writes the experiment and the environment's spec; removes a run that it replaces.

    Within the context, temporary files are created in the directory.  A launcher enters it after all checks have passed
    and before it starts a node, so a rejected start leaves nothing behind.

    Raises:
      CallboardError: the directory cannot be written.
    """
    directory = run.directory
    runs = [run, *(one for one in run.policy_runs if one is not run)]
    try:
        if directory.replaces:
            remove_run(directory)
        for one in runs:
            one.directory.create()
            write_experiment(one.experiment, one.directory.experiment)
            write_file(one.directory.environment, format_spec(one.layout.spec))
    except OSError as error:
        raise CallboardError(f"the run directory {directory.path} cannot be written: {error.strerror}") from error
    if directory.url:
        for one in runs:
            storage = Storage(one.directory.url)
            for file in (one.directory.experiment, one.directory.environment):
                storage.store(file.name, one.directory.path)
    with temporary_files_in(directory.temporary):
        yield
