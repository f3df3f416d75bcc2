"""Starting a Reverb server that leaves nothing behind outside its own directory."""

import pathlib
from collections.abc import Sequence

import reverb
from reverb.platform.default import checkpointers

from .checkpoints import prepare_directory


def start_server(
    tables: Sequence[reverb.Table], port: int | None, directory: pathlib.Path, restore: bool = True
) -> reverb.Server:
    """Starts a Reverb server on `port` (None: any free one) that keeps its checkpoints in `directory`.

    Without a directory of its own, a server makes one among the temporary files and leaves it there.

    Args:
      tables: what it serves.
      port: where.
      directory: of this shard alone.
      restore: whether to go on with the newest checkpoint in the directory, if there is one.

    Raises:
      CallboardError: the checkpoint was made with other settings than `tables` have.
    """
    checkpoints = prepare_directory(directory, tables, restore)
    checkpointer = checkpointers.DefaultCheckpointer(path=str(checkpoints))
    return reverb.Server(tables, port=port, checkpointer=checkpointer)
