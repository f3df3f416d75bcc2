"""Replay on Reverb: tables, writers and datasets.

Every timestep is stored once.  Items are slices of chunks, and overlapping items share the chunks of their overlap.
"""

from .gradient_queue import GradientItem, GradientQueue, GradientQueueWriter
from .reading.batch_reader import BatchReader, ReaderStopped, raise_if_stopped
from .reading.elements import Elements, rebuilt_if_changed
from .reading.priorities import PriorityUpdater, UpdateCounts
from .reading.queue_dataset import queue_dataset
from .reading.sharded_sampling import sampled_dataset
from .replay_protocol import Pace, Replay, ReplayDataset, Writer, checked_writer, made_dataset, made_tables
from .sampled_replay import SampledReplay
from .sequence_queue import SequenceQueue, items_per_batch
from .sequence_replay import SequenceFormat, SequenceReplay
from .servers.checkpoints import ReplayNotSaved, ShardSaver, check_saved_tables, latest_checkpoint
from .servers.handle import Heartbeat, ReplayHandle
from .servers.server import start_server
from .servers.tables import queue_table, replay_table
from .servers.window_weights import WindowWeights
from .stacking import Frames, check_stack, initial_frames, push_frames, stacked_sample, stacked_spec, without_frames
from .transition_replay import TransitionReplay
from .writing.batch_writers import ReplayItem
from .writing.item_format import ItemFormat
from .writing.item_writer import ItemWriter
from .writing.sequences import DiscountedReturns, SequenceItem, SequenceWriter, sequence_signature, sequence_spec
from .writing.windows import WindowFormat, WindowWriter

__all__ = [
    "DiscountedReturns",
    "Elements",
    "Frames",
    "BatchReader",
    "GradientItem",
    "GradientQueue",
    "GradientQueueWriter",
    "Heartbeat",
    "Pace",
    "PriorityUpdater",
    "ReaderStopped",
    "raise_if_stopped",
    "Replay",
    "ReplayDataset",
    "ReplayHandle",
    "ReplayItem",
    "ReplayNotSaved",
    "SampledReplay",
    "ItemFormat",
    "ItemWriter",
    "SequenceFormat",
    "SequenceItem",
    "SequenceQueue",
    "SequenceReplay",
    "SequenceWriter",
    "TransitionReplay",
    "UpdateCounts",
    "checked_writer",
    "made_dataset",
    "made_tables",
    "WindowFormat",
    "WindowWeights",
    "WindowWriter",
    "Writer",
    "ShardSaver",
    "check_saved_tables",
    "check_stack",
    "sampled_dataset",
    "initial_frames",
    "items_per_batch",
    "latest_checkpoint",
    "rebuilt_if_changed",
    "push_frames",
    "queue_dataset",
    "queue_table",
    "replay_table",
    "sequence_signature",
    "sequence_spec",
    "stacked_sample",
    "stacked_spec",
    "start_server",
    "without_frames",
]
