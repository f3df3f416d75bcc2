"""Replay on Reverb: tables, writers and datasets.

Every timestep is stored once.  Items are slices of chunks, and overlapping items share the chunks of their overlap.
"""

from .batch_reader import BatchReader, ReaderStopped, raise_if_stopped
from .checkpoints import ReplayNotSaved, ShardSaver, check_settings, latest_checkpoint
from .elements import Elements, made_again_if_changed
from .handle import ReplayHandle
from .heartbeat import Heartbeat
from .per_environment_writers import ReplayItem
from .priorities import PriorityUpdater, UpdateCounts
from .prioritized_sequences import PrioritizedSequenceWriter, prioritized_sequence_signature, read_sequences
from .queue_dataset import queue_dataset
from .replay_protocol import Pace, Replay, ReplayDataset, Writer
from .sampled_replay import SampledReplay
from .sequence_queue import SequenceQueue, items_per_batch
from .sequence_replay import SequenceReplay
from .sequences import SequenceItem, SequenceWriter, sequence_signature, sequence_spec
from .server import start_server
from .sharded_sampling import sampled_dataset
from .stacking import check_stack, initial_frames, push_frames, stacked_spec
from .tables import ReplayLimits, queue_table, replay_table
from .transition_replay import TransitionReplay
from .windows import WindowWriter, read_windows, window_signature

__all__ = [
    "Elements",
    "BatchReader",
    "Heartbeat",
    "Pace",
    "PrioritizedSequenceWriter",
    "PriorityUpdater",
    "ReaderStopped",
    "raise_if_stopped",
    "Replay",
    "ReplayDataset",
    "ReplayHandle",
    "ReplayItem",
    "ReplayLimits",
    "ReplayNotSaved",
    "SampledReplay",
    "SequenceItem",
    "SequenceQueue",
    "SequenceReplay",
    "SequenceWriter",
    "TransitionReplay",
    "UpdateCounts",
    "WindowWriter",
    "Writer",
    "ShardSaver",
    "check_settings",
    "check_stack",
    "sampled_dataset",
    "initial_frames",
    "items_per_batch",
    "latest_checkpoint",
    "made_again_if_changed",
    "prioritized_sequence_signature",
    "push_frames",
    "queue_dataset",
    "queue_table",
    "read_sequences",
    "read_windows",
    "replay_table",
    "sequence_signature",
    "sequence_spec",
    "stacked_spec",
    "start_server",
    "window_signature",
]
