"""The commands that a session sends to a learner: to save, to restore, and to read and set weights."""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....agents.learning.decaying_rate import continue_decay_of
from ....errors import CallboardError
from ....files.manifest import damage
from ...run_directory.checkpoints import Checkpoints, NotWritten
from ...run_directory.policy_weights import assign_weights, weights_by_name
from .prepared_learner import PreparedLearner


class LearnerCommands:
    """Executes commands between two steps of a learner.

    Args:
      prepared: what the learner trains.
      checkpoints: checkpoints of the run.
      learners: number of learners; several hold the same weights, so none changes its own.
      save: writes a checkpoint, and returns its path; with `keep`, later ones leave it.
      publish: called after the weights have changed.
    """

    def __init__(
        self,
        prepared: PreparedLearner,
        checkpoints: Checkpoints,
        learners: int,
        save: Callable[..., pathlib.Path],
        publish: Callable[[], None],
    ):
        self._prepared = prepared
        self._checkpoints = checkpoints
        self._learners = learners
        self._save_checkpoint = save
        self._publish = publish
        self.by_name: dict[str, Callable[..., Any]] = {
            "save": self._save,
            "restore": self._restore,
            "get_weights": lambda: weights_by_name(prepared.policy),
            "set_weights": self._set_weights,
        }

    def _save(self) -> str:
        try:
            return str(self._save_checkpoint(keep=True))
        except NotWritten as error:
            raise CallboardError(f"no checkpoint could be written: {error}") from error

    def _restore(self, path: str) -> int:
        """Continues from a checkpoint; returns its learner step.

        The run's own step does not run backwards, so that the checkpoints that follow are the newest.
        """
        self._check_alone()
        checkpoint = pathlib.Path(path)
        problem = damage(checkpoint) if checkpoint.exists() else "it is missing"
        if problem:
            raise CallboardError(f"{path} is not a checkpoint that can be used ({problem}); name what `save` returned")
        step = self._checkpoints.restore(checkpoint, self._prepared.modules, self._prepared.variables)
        continue_decay_of(self._prepared.learner)
        self._publish()
        return step

    def _set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        self._check_alone()
        assign_weights(self._prepared.policy, weights)
        self._publish()

    def _check_alone(self) -> None:
        if self._learners > 1:
            raise CallboardError(
                f"the weights of {self._learners} learners cannot be changed while they learn; set learners to 1, or "
                "begin a new run with other weights"
            )
