"""Reverb: tables, writers and datasets.

Every tick is stored once.  Items are slices of chunks, so items that overlap share what they have in common.
"""

from .datasets import ReplayDataset, items_per_batch, queue_dataset
from .handle import ReplayHandle
from .heartbeat import Heartbeat
from .reader import BatchReader, ReaderStopped
from .sequences import SequenceItem, SequenceWriter, sequence_signature
from .server import start_server
from .tables import queue_table

__all__ = [
    "BatchReader",
    "Heartbeat",
    "ReaderStopped",
    "ReplayDataset",
    "ReplayHandle",
    "SequenceItem",
    "SequenceWriter",
    "items_per_batch",
    "queue_dataset",
    "queue_table",
    "sequence_signature",
    "start_server",
]
