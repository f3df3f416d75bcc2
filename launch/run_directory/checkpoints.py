"""Checkpoints: the learner's state, the policy's weights and the counters, written atomically.

A checkpoint is a directory `checkpoints/<learner step>`, which appears complete, by a rename, or not at all.  The
second checkpoint of the same step is `<learner step>.001`.  A manifest lists the contents of its files and is checked
before they are used: a damaged checkpoint is renamed to `damaged-...`, and the previous one is used instead.
"""

import json
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ...agents.agent import Policy
from ...agents.variables.finite_checks import check_saved_weights
from ...errors import CallboardError
from ...files.atomic_files import directory_draft, link_or_copy, remove_directory, remove_drafts, set_aside, write_file
from ...files.guarded_files import read_json, read_regular
from ...files.manifest import MANIFEST, damage, write_manifest
from .file_errors import file_error
from .layout import CHECKPOINT_NAME, KEEP_MARK, RunDirectory, is_checkpoint_name, newest_of_steps
from .policy_weights import load_weights, write_weights

_KEEP = 2
_MARKER_BYTES = 100
_LARGEST_COUNT = 2**62
"""Bound on a count: sums of several still fit 64 bits."""
_logger = logging.getLogger(__name__)


class NotWritten(Exception):
    """A checkpoint could not be written, for example because the disk is full; earlier ones are unchanged."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
      run_directory: the run directory.
      notify: receives a line about every damaged checkpoint.
      keep: number of the newest checkpoints that `save` leaves.
      read_only: whether damaged checkpoints stay where they are.
    """

    def __init__(
        self,
        run_directory: RunDirectory,
        notify: Callable[[str], None] = _logger.warning,
        keep: int = _KEEP,
        read_only: bool = False,
    ):
        self._run_directory = run_directory
        self.directory = run_directory.checkpoints
        self._notify = notify
        self._keep = keep
        self._read_only = read_only
        self._damaged: set[str] = set()
        """Names of the checkpoints found damaged."""
        self._whole: set[tuple[str, int]] = set()
        """Names and inodes of the checkpoints found intact."""

    def latest(self) -> pathlib.Path | None:
        """Returns the newest intact checkpoint; None if there never was a checkpoint.

        Raises:
          CallboardError: all checkpoints are damaged.
        """
        newest = self._newest_whole()
        if newest is None:
            aside = [path.name for path in self.directory.glob("damaged-[0-9]*") if path.is_dir()]
            damaged = [*sorted(self._damaged), *sorted(aside)]
            if damaged:
                raise CallboardError(
                    f"no checkpoint in {self.directory} can be used, {damaged[-1]} is damaged; replace it by a copy, "
                    "or remove it to begin the training anew"
                )
        return newest

    def named(self, checkpoint: str) -> pathlib.Path | None:
        """Returns an intact checkpoint of a learner step, the newest unless another one is named; None without one.

        Args:
          checkpoint: a learner step, or the name of a checkpoint's directory, such as `000000001000.001`.
        """
        step = int(checkpoint.partition(".")[0])
        of_step = [path for path in self._all() if step_of(path) == step]
        return self._newest_whole(sorted(of_step, key=lambda path: path.name == checkpoint))

    def steps(self) -> list[int]:
        """Returns the learner steps of all checkpoints, the newest last."""
        return [step_of(path) for path in self._all()]

    def counter_sources(self) -> dict[str, dict[str, int]]:
        """Returns the counters in the newest intact checkpoint, by source."""
        newest = self._newest_whole()
        return checked_sources(read_json(newest / "counters.json")) if newest else {}

    def control(self) -> dict[str, Any]:
        """Returns the changes of the run in its newest intact checkpoint."""
        newest = self._newest_whole()
        path = newest / "control.json" if newest else None
        return read_json(path) if path and path.exists() else {}

    def newest_step(self) -> int:
        """Returns the learner step of the newest intact checkpoint; 0 if there is none."""
        newest = self._newest_whole()
        return step_of(newest) if newest else 0

    def save(
        self,
        step: int,
        modules: Mapping[str, tf.Module],
        policy: Policy,
        counter_sources: Mapping[str, Mapping[str, int]],
        control: Mapping[str, Any] | None = None,
        keep: bool = False,
    ) -> pathlib.Path:
        """Writes the checkpoint of a learner step and removes old ones.

        Args:
          step: number of learner steps done.
          modules: everything that the learner needs to continue, by name.
          policy: the policy to act with.
          counter_sources: the counters, by source.
          control: what has been changed in the run, see `run_control`; may be empty.
          keep: whether it is never removed, in addition to the newest ones.

        Raises:
          NotWritten: with the reason; no part of the checkpoint is left.
          NotFiniteError: a weight is NaN or infinite; no part of the checkpoint is left.
          CallboardError: the run directory was renamed, deleted or replaced.
        """
        try:
            self._run_directory.make(self.directory)
            final = self._new_path(step)
            with directory_draft(final) as draft:
                tf.train.Checkpoint(**modules).write(str(draft / "learner"))
                check_saved_weights(str(draft / "learner"))
                write_weights(draft / "policy.npz", policy)
                (draft / "counters.json").write_text(json.dumps(counter_sources))
                if control:
                    (draft / "control.json").write_text(json.dumps(control))
                if keep:
                    (draft / KEEP_MARK).touch()
                write_manifest(draft)
        except (OSError, tf.errors.OpError) as error:
            self._run_directory.check_same()
            raise NotWritten(file_error(error)) from error
        everything = [path for path in self._all() if not (path / KEEP_MARK).exists()]
        kept = newest_of_steps(everything, step_of, self._keep)
        for old in everything:
            if old not in kept:
                remove_directory(old)
        remove_drafts(self.directory)
        return final

    def remove_all(self) -> None:
        """Removes all checkpoints, including the damaged ones."""
        for path in [*self._all(), *self.directory.glob("damaged-[0-9]*")]:
            remove_directory(path)

    def replace_counters(self, counter_sources: Mapping[str, Mapping[str, int]]) -> None:
        """Replaces the newest checkpoint by a copy with other counters, those at the end of the run.

        One that is never removed stays beside the copy.  Does nothing if there is no checkpoint.

        Raises:
          NotWritten: with the reason; the checkpoint is unchanged.
        """
        newest = self._newest_whole()
        if newest is None or not (newest / "policy.npz").exists():
            return
        try:
            with directory_draft(self._new_path(step_of(newest))) as draft:
                for path in newest.iterdir():
                    if path.name not in ("counters.json", KEEP_MARK, MANIFEST):
                        link_or_copy(path, draft / path.name)
                (draft / "counters.json").write_text(json.dumps(counter_sources))
                write_manifest(draft)
        except OSError as error:
            raise NotWritten(file_error(error)) from error
        if not (newest / KEEP_MARK).exists():
            remove_directory(newest)

    def restore(
        self, path: pathlib.Path, modules: Mapping[str, tf.Module], policy_variables: Sequence[tf.Variable]
    ) -> int:
        """Loads a checkpoint into modules that were built alike, and returns its learner step.

        Raises:
          CallboardError: the networks have changed (names the first weight that differs), or the learner has.
        """
        load_weights(path / "policy.npz", policy_variables)
        status = tf.train.Checkpoint(**modules).read(str(path / "learner"))
        try:
            status.assert_consumed()
        except AssertionError as error:
            raise CallboardError(
                f"{path} was written by another kind of learner: {str(error).splitlines()[0]}"
            ) from error
        return step_of(path)

    def next_incarnation(self) -> int:
        """Counts the incarnations of the learner in this run and returns the number of this one, from 0 on."""
        marker = self.directory / "incarnation"
        try:
            number = int(read_regular(marker, _MARKER_BYTES)) + 1
        except FileNotFoundError:
            number = 0
        except (OSError, ValueError):
            # The file is damaged.  Minutes since 1970 exceed any number of incarnations so far, and fit 32 bits.
            number = int(time.time() / 60)
        write_file(marker, str(number))
        return number

    def _newest_whole(self, paths: Sequence[pathlib.Path] | None = None) -> pathlib.Path | None:
        """Returns the last intact one of some checkpoints, by default of all, and sets damaged ones aside."""
        for path in reversed(self._all() if paths is None else paths):
            try:
                key = (path.name, path.stat().st_ino)
                wrong = "" if key in self._whole else damage(path) or _counter_damage(path)
                if not wrong:
                    self._whole.add(key)
                    return path
                path.stat()
            except FileNotFoundError:
                continue  # The learner has removed it in the meantime.
            if path.name in self._damaged:
                continue
            self._damaged.add(path.name)
            kept = None if self._read_only else set_aside(path)
            self._notify(
                f"the checkpoint {path.name} is damaged ({wrong}) and not used"
                + (f"; it is kept as {kept.name}" if kept is not None else "")
            )
        return None

    def _all(self) -> list[pathlib.Path]:
        """Returns all checkpoints, the newest last."""
        return sorted(
            (path for path in self.directory.glob("[0-9]*") if is_checkpoint_name(path.name) and path.is_dir()),
            key=lambda path: path.name,
        )

    def _new_path(self, step: int) -> pathlib.Path:
        """Returns a new path for a checkpoint of a step; none is replaced, since two renames are not atomic."""
        numbers = [
            match for path in self._all() if (match := CHECKPOINT_NAME.fullmatch(path.name)) and int(match[1]) == step
        ]
        if not numbers:
            return self.directory / f"{step:012d}"
        return self.directory / f"{step:012d}.{max(int(match[2] or 0) for match in numbers) + 1:03d}"


def _counter_damage(checkpoint: pathlib.Path) -> str:
    try:
        checked_sources(read_json(checkpoint / "counters.json"))
    except FileNotFoundError:
        return ""  # Only the policy was downloaded.
    except (OSError, ValueError) as error:
        return f"counters.json cannot be used: {error}"
    return ""


def step_of(checkpoint: pathlib.Path) -> int:
    """Returns the learner step of a checkpoint."""
    return int(checkpoint.name.partition(".")[0])


def checked_sources(content: Any) -> dict[str, dict[str, int]]:
    """Returns the counts of a file by source, such as `{"actor/0#a1": {"environment_steps": 100}}`.

    Raises:
      ValueError: the content is something else.
    """
    if not isinstance(content, dict) or not all(map(_are_counts, content.values())):
        raise ValueError("they are no counts by source")
    return content


def _are_counts(counts: Any) -> bool:
    return isinstance(counts, dict) and all(
        type(count) is int and 0 <= count < _LARGEST_COUNT for count in counts.values()
    )
