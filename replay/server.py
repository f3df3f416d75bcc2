"""Starting a Reverb server that leaves nothing behind outside its own directory."""

import pathlib
from collections.abc import Sequence

import reverb
from reverb.platform.default import checkpointers


def start_server(tables: Sequence[reverb.Table], port: int | None, directory: pathlib.Path) -> reverb.Server:
    """Starts a Reverb server on `port` (None: any free one) that keeps its checkpoints in `directory`.

    Without a directory of its own, a server makes one among the temporary files and leaves it there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    checkpointer = checkpointers.DefaultCheckpointer(path=str(directory))
    return reverb.Server(tables, port=port, checkpointer=checkpointer)
