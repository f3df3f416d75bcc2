"""Checkpoints of replay shards: what is in the tables outlives the server.

A shard keeps its newest checkpoint in a directory of its own, beside a description of the settings it was made with.
Reverb restores a table with the settings of the checkpoint, whatever the new ones are, so others are refused.

    <shard's directory>/settings.json
    <shard's directory>/checkpoints/<time>/    of these Reverb removes all but the last by name, whatever they are
"""

import json
import pathlib
import shutil
import threading
from collections.abc import Sequence
from typing import Any

import reverb
import tensorflow as tf
from reverb.cc.checkpointing import checkpoint_pb2

from ..data import CallboardError
from .handle import ReplayHandle

_CHECKPOINTS = "checkpoints"
_SETTINGS = "settings.json"
_TABLES = "tables.tfrecord"
_COMPRESSION = "ZLIB"


def save_shard(replay: ReplayHandle, shard: int = 0, timeout: float = 300.0) -> bool:
    """Writes a checkpoint of one shard into its directory, and removes the one before.

    Writers and readers go on meanwhile, with short stalls.

    Returns:
      Whether it was written within `timeout` seconds.  The server may still write it afterwards.
    """
    client = replay.client(shard)
    written = threading.Event()

    def save() -> None:
        try:
            client.checkpoint()
            written.set()
        except Exception:  # Reverb raises its own errors and RuntimeError; each means that the shard is away.
            pass

    # The call has no timeout and blocks through an outage, so it gets a thread that can be left behind.
    thread = threading.Thread(target=save, name="replay-checkpoint", daemon=True)
    thread.start()
    thread.join(timeout)
    return written.is_set()


def latest_checkpoint(directory: pathlib.Path) -> pathlib.Path | None:
    """The checkpoint that a server in a shard's directory would restore; None if there is none."""
    whole = sorted(path.parent for path in (directory / _CHECKPOINTS).glob("*/DONE"))
    return whole[-1] if whole else None


def prepare_directory(directory: pathlib.Path, tables: Sequence[reverb.Table], restore: bool) -> pathlib.Path:
    """Makes a shard's directory ready for a server with those tables.

    Args:
      directory: of the shard.
      tables: of the server.
      restore: whether the server shall go on with the newest checkpoint; otherwise those there are removed.

    Returns:
      Where the server shall keep its checkpoints.

    Raises:
      CallboardError: if the checkpoint was made with other settings, naming one that differs.
    """
    checkpoints = directory / _CHECKPOINTS
    if not restore:
        shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(parents=True, exist_ok=True)
    check_settings(directory, tables)
    latest, path = latest_checkpoint(directory), directory / _SETTINGS
    if latest is not None:
        _let_sample(latest)
    draft = path.with_name("draft-" + _SETTINGS)
    draft.write_text(json.dumps({table.name: _describe(table) for table in tables}, indent=1))
    draft.replace(path)
    return checkpoints


def check_settings(directory: pathlib.Path, tables: Sequence[reverb.Table]) -> None:
    """Refuses to go on with a shard's checkpoint, if there is one, in tables that were made otherwise.

    Raises:
      CallboardError: names a setting that differs.
    """
    path = directory / _SETTINGS
    if latest_checkpoint(directory) is not None and path.exists():
        _refuse_others(directory, json.loads(path.read_text()), {table.name: _describe(table) for table in tables})


def _describe(table: reverb.Table) -> dict[str, str]:
    info = table.info
    limiter = info.rate_limiter_info
    return {
        "max_size": str(info.max_size),
        "max_times_sampled": str(info.max_times_sampled),
        "samples_per_insert": f"{limiter.samples_per_insert:g}",
        "min_size_to_sample": str(limiter.min_size_to_sample),
        "error_buffer": f"{limiter.min_diff:g} to {limiter.max_diff:g}",
        "sampler": " ".join(str(info.sampler_options).split()),
        "remover": " ".join(str(info.remover_options).split()),
        "signature": str(info.signature),
    }


def _refuse_others(directory: pathlib.Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    if sorted(before) != sorted(now):
        raise CallboardError(
            f"the replay checkpoint in {directory} holds the tables {', '.join(sorted(before))}, not "
            f"{', '.join(sorted(now))}: remove it to begin with an empty replay"
        )
    for table, settings in now.items():
        for name, value in settings.items():
            old = before[table].get(name)
            if old != value:
                change = f", {old} instead of {value}" if name != "signature" else ""
                raise CallboardError(
                    f"the replay checkpoint in {directory} was made with another {name}{change}: take the old "
                    "settings, or remove it to begin with an empty replay"
                )


def _let_sample(checkpoint: pathlib.Path) -> None:
    """Sets the limiters of a checkpoint to the middle of what they allow.

    A limiter comes back as it was.  Where the learner had drawn all it might, it would have to wait for new inserts,
    although what it had drawn last was lost with it.
    """
    path = checkpoint / _TABLES
    tables = []
    for record in tf.data.TFRecordDataset(str(path), compression_type=_COMPRESSION):
        table = checkpoint_pb2.PriorityTableCheckpoint.FromString(record.numpy())
        limiter = table.rate_limiter
        first_samples = limiter.samples_per_insert * limiter.min_size_to_sample
        # What a queue has given out is gone: its counts are right as they are.
        read_once = table.max_times_sampled > 0
        if not read_once and limiter.insert_count >= limiter.min_size_to_sample:
            limiter.sample_count = max(0, round(limiter.insert_count * limiter.samples_per_insert - first_samples))
        tables.append(table.SerializeToString())
    draft = path.with_name("draft-" + _TABLES)
    with tf.io.TFRecordWriter(str(draft), _COMPRESSION) as writer:
        for table in tables:
            writer.write(table)
    draft.replace(path)
