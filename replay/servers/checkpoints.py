"""Checkpoints of replay shards, from which a restarted server restores its tables.

Each shard has a directory in which it keeps its newest two checkpoints.  A checkpoint contains a description of the
tables' settings, because Reverb restores a table with the settings of the checkpoint and ignores the new ones; a
checkpoint with other settings is therefore rejected.  It also has a manifest, because Reverb aborts the process if a
file is damaged: a checkpoint is compared with its manifest first, and renamed to `damaged-...` if it differs.

    <shard's directory>/checkpoints/<number>/    the newest has the highest number
    <shard's directory>/written/<time>/          where Reverb writes; it keeps only the latest by local time
    <shard's directory>/settings.json            table settings of the running server
    <shard's directory>/restored/                the checkpoint that the server reads when it starts
"""

import json
import logging
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

import reverb
import tensorflow as tf
from reverb.cc.checkpointing import checkpoint_pb2

from ...errors import CallboardError
from ...files.atomic_files import (
    link_or_copy,
    make_as_open,
    publish_directory,
    remove_directory,
    remove_drafts,
    set_aside,
    write_file,
)
from ...files.guarded_files import read_json
from ...files.manifest import damage, write_manifest
from ...runtime.deadlines import Deadline
from .handle import ReplayHandle

_KEEP = 2
_CHECKPOINTS = "checkpoints"
_WRITTEN = "written"
_RESTORED = "restored"
_SETTINGS = "settings.json"
_SOURCES = {"max_size": "agent.replay.size", "min_size_to_sample": "agent.replay.min_size"}
_TABLES = "tables.tfrecord"
_COMPRESSION = "ZLIB"
_POLL_SECONDS = 0.5
_logger = logging.getLogger(__name__)


class ReplayNotSaved(Exception):
    """A checkpoint of a shard could not be written, for example because the disk is full."""


class ShardSaver:
    """Writes the checkpoints of one shard.

    Args:
      replay: handle of the shard, whose server runs on this machine.
      directory: the shard's directory, with which its server was started.
      shard: index of the shard.
      save_further: writes further files to the directory of a checkpoint that Reverb has written.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        directory: pathlib.Path,
        shard: int = 0,
        save_further: Callable[[pathlib.Path], None] | None = None,
    ):
        self._replay = replay
        self._directory = directory
        self._shard = shard
        self._save_further = save_further
        self._thread: threading.Thread | None = None
        self._saved: pathlib.Path | None = None
        self._error: Exception | None = None

    def save(self, timeout: float = 300.0) -> pathlib.Path:
        """Writes a checkpoint and removes all but the newest two.

        Writers and readers continue meanwhile, with short stalls.

        Args:
          timeout: seconds without progress after which saving fails.

        Returns:
          The path of the checkpoint.

        Raises:
          ReplayNotSaved: the checkpoint was not written; the message contains the reason.  After a timeout the server
            may still complete it.
        """
        self._wait(timeout)
        # The call has no timeout and blocks during an outage, so it runs in a thread that can be abandoned.
        self._saved = self._error = None
        _remove_written(self._directory)
        self._thread = threading.Thread(target=self._save, name="replay-checkpoint", daemon=True)
        self._thread.start()
        self._wait(timeout)
        if self._saved is None:
            raise ReplayNotSaved(" ".join(str(self._error).split())) from self._error
        return self._saved

    def _wait(self, timeout: float) -> None:
        """Waits for the thread that saves, for as long as it makes progress."""
        if self._thread is None:
            return
        written, deadline = self._bytes_written(), Deadline(timeout)
        while self._thread.is_alive():
            self._thread.join(_POLL_SECONDS)
            if written != (written := self._bytes_written()):
                deadline.restart()
            elif deadline.has_passed and self._thread.is_alive():
                raise ReplayNotSaved(f"nothing was written for {timeout:.0f} s")

    def _bytes_written(self) -> int:
        total = 0
        for path in (self._directory / _WRITTEN).rglob("*"):
            try:
                total += path.stat().st_size
            except OSError:
                continue
        return total

    def _save(self) -> None:
        try:
            client = self._replay.client(self._shard)
            # Waits for a connection.  `checkpoint` fails at once if gRPC could not connect to this address just before.
            client.server_info()
            written = pathlib.Path(client.checkpoint())
            shutil.copyfile(self._directory / _SETTINGS, written / _SETTINGS)
            if self._save_further is not None:
                self._save_further(written)
            write_manifest(written)
            saved = _next_path(self._directory)
            publish_directory(written, saved)
            for old in _checkpoints_in(self._directory)[:-_KEEP]:
                remove_directory(old)
            self._saved = saved
        except Exception as error:  # Reverb raises its own errors, RuntimeError and IndexError (a full disk).
            self._error = error
            _remove_written(self._directory)


def latest_checkpoint(
    directory: pathlib.Path, notify: Callable[[str], None] = _logger.warning, sizes_only: bool = False
) -> pathlib.Path | None:
    """Returns the newest undamaged checkpoint in a shard's directory, or None.  Damaged ones are renamed.

    Args:
      directory: the shard's directory.
      notify: called with a line of text for every damaged checkpoint.
      sizes_only: whether to compare only the sizes of files with the manifest, which is fast, and not their content.
    """
    for path in reversed(_checkpoints_in(directory)):
        wrong = damage(path, sizes_only)
        if not wrong:
            return path
        if not path.exists():
            continue  # The server's node has removed it in the meantime.
        kept = set_aside(path)
        notify(
            f"the checkpoint {path.name} of replay shard {directory.name} is damaged ({wrong}) and not used"
            + (f"; it is kept as {kept.name}" if kept is not None else "")
        )
    return None


def prepare_directory(
    directory: pathlib.Path,
    tables: Sequence[reverb.Table],
    restore: bool,
    notify: Callable[[str], None] = _logger.warning,
) -> tuple[pathlib.Path, pathlib.Path | None]:
    """Prepares a shard's directory for a server with these tables.

    Args:
      directory: the shard's directory.
      tables: the server's tables.
      restore: whether the server continues with the newest checkpoint; otherwise existing checkpoints are removed.
      notify: called with a line of text for every damaged checkpoint.

    Returns:
      The directory to which the server must write its checkpoints, and the checkpoint that it must restore, or None.
      See `remove_restored`.

    Raises:
      CallboardError: the checkpoint was made with other settings; the message names one that differs.
    """
    checkpoints, written = directory / _CHECKPOINTS, directory / _WRITTEN
    if not restore:
        shutil.rmtree(checkpoints, ignore_errors=True)
    make_as_open(checkpoints)
    for place in (directory, checkpoints):
        remove_drafts(place)
    remove_restored(directory)
    latest = latest_checkpoint(directory, notify)
    if latest is not None:
        _check_settings(latest, tables)
    shutil.rmtree(written, ignore_errors=True)
    make_as_open(written)
    write_file(directory / _SETTINGS, json.dumps({table.name: _describe(table) for table in tables}, indent=1))
    if latest is None:
        return written, None
    restored = directory / _RESTORED
    # Hard links; the checkpoint itself must not change, or it would differ from its manifest.
    shutil.copytree(latest, restored, copy_function=link_or_copy)
    _center_rate_limiters(restored)
    return written, restored


def remove_restored(directory: pathlib.Path) -> None:
    """Removes the copy of a checkpoint from which a shard's server has restored its tables."""
    shutil.rmtree(directory / _RESTORED, ignore_errors=True)


def check_saved_tables(directory: pathlib.Path, tables: Sequence[reverb.Table]) -> None:
    """Checks that a shard's newest checkpoint, if any, was made with the settings of these tables.

    Raises:
      CallboardError: a setting differs; the message names it.
    """
    latest = latest_checkpoint(directory, sizes_only=True)
    if latest is not None:
        _check_settings(latest, tables)


def _check_settings(checkpoint: pathlib.Path, tables: Sequence[reverb.Table]) -> None:
    before = read_json(checkpoint / _SETTINGS)
    _check_same_settings(checkpoint.parents[1], before, {table.name: _describe(table) for table in tables})


def _checkpoints_in(directory: pathlib.Path) -> list[pathlib.Path]:
    """Returns the checkpoints of a shard, the newest last."""
    found = [path for path in (directory / _CHECKPOINTS).glob("[0-9]*") if path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name))


def _next_path(directory: pathlib.Path) -> pathlib.Path:
    """Returns the path of a shard's next checkpoint."""
    names = [path.name for path in (directory / _CHECKPOINTS).iterdir()]
    # Damaged checkpoints are included, so that a newer checkpoint always has a higher number.
    numbers = [int(part) for name in names for part in name.removeprefix("damaged-").split(".")[:1] if part.isdigit()]
    return directory / _CHECKPOINTS / f"{max(numbers, default=0) + 1:012d}"


def _remove_written(directory: pathlib.Path) -> None:
    """Removes unfinished checkpoints of Reverb.  Must not be called while Reverb writes one."""
    for path in (directory / _WRITTEN).glob("*"):
        shutil.rmtree(path, ignore_errors=True)


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


def _check_same_settings(directory: pathlib.Path, before: dict[str, Any], now: dict[str, Any]) -> None:
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
                if name in _SOURCES:
                    change += f" items, which follow from {_SOURCES[name]} and the number of environments of an actor"
                raise CallboardError(
                    f"the replay checkpoint in {directory} was made with another {name}{change}: take the old "
                    "settings, or remove it to begin with an empty replay"
                )


def _center_rate_limiters(checkpoint: pathlib.Path) -> None:
    """Sets the rate limiters of a checkpoint to the middle of their allowed range.

    Reverb restores a limiter as it was.  If the learner had used up its allowed samples, it would have to wait for new
    inserts, although the samples it took last were lost when it restarted.
    """
    path = checkpoint / _TABLES
    tables = []
    for record in tf.data.TFRecordDataset(str(path), compression_type=_COMPRESSION):
        table = checkpoint_pb2.PriorityTableCheckpoint.FromString(record.numpy())
        limiter = table.rate_limiter
        middle = (limiter.min_diff + limiter.max_diff) / 2
        # Items read from a queue are gone, so the limiter of a queue is already correct.
        read_once = table.max_times_sampled > 0
        if not read_once and limiter.insert_count >= limiter.min_size_to_sample:
            limiter.sample_count = max(0, round(limiter.insert_count * limiter.samples_per_insert - middle))
        tables.append(table.SerializeToString())
    path.unlink()  # It may be a hard link, whose target must not change.
    with tf.io.TFRecordWriter(str(path), _COMPRESSION) as writer:
        for table in tables:
            writer.write(table)
