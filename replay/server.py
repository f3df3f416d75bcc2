"""Starting a Reverb server that leaves nothing behind outside its own directory."""

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
    directory: pathlib.Path,
    restore: bool = True,
    say: Callable[[str], None] = _logger.warning,
) -> reverb.Server:
    """Starts a Reverb server on `port` (None: any free one) that keeps its checkpoints in `directory`.

    Without a directory of its own, a server makes one among the temporary files and leaves it there.

    Args:
      tables: what it serves.
      port: where.
      directory: of this shard alone.
      restore: whether to go on with the newest checkpoint in the directory, if there is one.
      say: is given a line about every checkpoint that is damaged.

    Raises:
      CallboardError: the checkpoint was made with other settings than `tables` have.
    """
    written, restored = prepare_directory(directory, tables, restore, say)
    checkpointer = checkpointers.DefaultCheckpointer(
        path=str(written), fallback_checkpoint_path=None if restored is None else str(restored)
    )
    try:
        return reverb.Server(tables, port=port, checkpointer=checkpointer)
    finally:
        remove_restored(directory)
