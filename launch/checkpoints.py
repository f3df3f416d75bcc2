"""Checkpoints: the learner's state, the policy's weights and the counters, written in one atomic step.

A checkpoint is a directory `checkpoints/<learner step>` that appears whole, by a rename, or not at all.
"""

import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..data import CallboardError
from .run_directory import RunDirectory

_KEEP = 2


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run_directory: RunDirectory):
        self._directory = run_directory.checkpoints

    def latest(self) -> pathlib.Path | None:
        """The newest checkpoint; None if there is none."""
        found = self._all()
        return found[-1] if found else None

    def counter_sources(self) -> dict[str, dict[str, int]]:
        """The counters in the newest checkpoint, by source."""
        latest = self.latest()
        return json.loads((latest / "counters.json").read_text()) if latest else {}

    def save(
        self,
        step: int,
        modules: Mapping[str, tf.Module],
        policy_variables: Sequence[tf.Variable],
        counter_sources: Mapping[str, Mapping[str, int]],
    ) -> pathlib.Path:
        """Writes the checkpoint of a learner step, and removes old ones.

        Args:
          step: learner steps done.
          modules: all that the learner needs to go on, by name.
          policy_variables: the weights to act with, see `load_policy`.
          counter_sources: the counters, by source.
        """
        final = self._directory / f"{step:012d}"
        draft = self._directory / f"draft-{step:012d}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        tf.train.Checkpoint(**modules).write(str(draft / "learner"))
        save_policy(draft / "policy.npz", policy_variables)
        (draft / "counters.json").write_text(json.dumps(counter_sources))
        for path in draft.iterdir():
            _sync(path)
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
        _sync(self._directory)
        for old in self._all()[:-_KEEP]:
            shutil.rmtree(old, ignore_errors=True)
        return final

    def restore(
        self, path: pathlib.Path, modules: Mapping[str, tf.Module], policy_variables: Sequence[tf.Variable]
    ) -> int:
        """Loads a checkpoint into modules that were built alike, and gives its learner step.

        Raises:
          CallboardError: if the networks have changed, with the first weight that differs.
        """
        load_policy(path / "policy.npz", policy_variables)
        status = tf.train.Checkpoint(**modules).read(str(path / "learner"))
        try:
            status.assert_consumed()
        except AssertionError as error:
            raise CallboardError(
                f"{path} was written by another kind of learner: {str(error).splitlines()[0]}"
            ) from error
        return int(path.name)

    def next_incarnation(self) -> int:
        """Counts the starts of the learner in this run; the first is 0."""
        marker = self._directory / "incarnation"
        number = int(marker.read_text()) + 1 if marker.exists() else 0
        draft = marker.with_name("incarnation-draft")
        draft.write_text(str(number))
        draft.rename(marker)
        return number

    def _all(self) -> list[pathlib.Path]:
        return sorted(path for path in self._directory.glob("[0-9]*") if path.is_dir() and path.name.isdigit())


def save_policy(path: pathlib.Path, variables: Sequence[tf.Variable], **also: Any) -> None:
    """Writes a policy's weights, in order, to an `.npz` file, in one atomic step."""
    write_policy(path, [variable.name for variable in variables], [variable.numpy() for variable in variables], **also)


def write_policy(path: pathlib.Path, names: Sequence[str], values: Sequence[np.ndarray], **also: Any) -> None:
    draft = path.with_name("draft-" + path.name)
    weights = {f"weight_{index:04d}": value for index, value in enumerate(values)}
    np.savez(draft, names=np.array(names), **weights, **also)
    os.replace(draft, path)


def load_policy(path: pathlib.Path, variables: Sequence[tf.Variable]) -> None:
    """Loads a policy's weights into variables of the same shapes.

    Raises:
      CallboardError: names the first weight whose shape differs.
    """
    with np.load(path) as file:
        names = list(file["names"])
        values = [file[f"weight_{index:04d}"] for index in range(len(names))]
    for name, value, variable in zip(names, values, variables, strict=False):
        if value.shape != tuple(variable.shape):
            raise CallboardError(
                f"the network has changed since {path} was written: {name} was {value.shape} and is now "
                f"{tuple(variable.shape)}; go on with the settings of the run, or begin a new one"
            )
    if len(values) != len(variables):
        raise CallboardError(
            f"the network has changed since {path} was written: it had {len(values)} weights and has now "
            f"{len(variables)}; go on with the settings of the run, or begin a new one"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
