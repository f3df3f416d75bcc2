"""Start of a Reverb server that leaves no files outside its checkpoint directory."""

import logging
import pathlib
from collections.abc import Callable, Sequence

import reverb
from reverb.platform.default import checkpointers

from .checkpoints import prepare_directory, remove_restored

_logger = logging.getLogger(__name__)


def start_server(
    tables: Sequence[reverb.Table],
    port: int | None,
    directory: str | pathlib.Path,
    restore: bool = True,
    notify: Callable[[str], None] = _logger.warning,
    restore_further: Callable[[reverb.Server, pathlib.Path], None] | None = None,
) -> reverb.Server:
    """Starts a Reverb server that keeps its checkpoints in `directory`.

    Without an explicit directory, Reverb would create a temporary one and never remove it.

    Args:
      tables: the tables to serve.
      port: port to listen on; None for any free port.
      directory: directory used only by this shard.
      restore: whether to continue with the newest checkpoint in the directory, if there is one.
      notify: called with a line of text for every damaged checkpoint.
      restore_further: called with the server and the checkpoint that it has restored, if there is one.

    Raises:
      CallboardError: the checkpoint was made with settings that differ from those of `tables`.
    """
    directory = pathlib.Path(directory)
    written, restored = prepare_directory(directory, tables, restore, notify)
    checkpointer = checkpointers.DefaultCheckpointer(
        path=str(written), fallback_checkpoint_path=None if restored is None else str(restored)
    )
    try:
        server = reverb.Server(tables, port=port, checkpointer=checkpointer)
        if restored is not None and restore_further is not None:
            try:
                restore_further(server, restored)
            except BaseException:
                server.stop()
                raise
        return server
    finally:
        remove_restored(directory)
