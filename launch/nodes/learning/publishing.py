"""Serves the newest weights of a learner, checked, and those of fixed policies, to nodes that act."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from ....agents.agent import Agent, Policy
from ....agents.agent_names import agent_name
from ....agents.variables.finite_checks import LossCheck, NotFiniteError
from ....data import Update, Version
from ...run_directory.checkpoints import Checkpoints, step_of
from ..acting.opponents import Announced, ServedPolicies
from .weight_publisher import WeightPublisher


class Publishing:
    """Publishes the weights of a learner, and serves the weights of the fixed policies of its run.

    Args:
      agent: the agent, for error messages.
      checkpoints: checkpoints of the run, for error messages.
      fixed: the fixed policies.
      every: learner steps between two snapshots, see `WeightPublisher`.
      patience: seconds for which a client waits for new weights.
    """

    served: ClassVar[tuple[str, ...]] = (
        "final_version",
        "get_fixed",
        "get_fixed_part",
        "get_trained_agents",
    )

    def __init__(self, agent: Agent, checkpoints: Checkpoints, fixed: ServedPolicies, every: int, patience: float):
        self._agent = agent
        self._checkpoints = checkpoints
        self._fixed = fixed
        self.weights = WeightPublisher(every, patience)
        """Takes the snapshots, and serves them."""
        self._losses = LossCheck()
        self._final: Version | None = None

    def final_version(self) -> tuple[int, int] | None:
        """Returns the version of the final weights; None while the learner is still learning."""
        return None if self._final is None else (self._final.incarnation, self._final.step)

    def get_fixed(self, known: Mapping[str, Sequence[int]], most: int) -> dict[str, Announced]:
        """Returns the weights of fixed policies that this learner serves, see `opponents.ServedPolicies`."""
        return self._fixed.others_than(known, most)

    def get_fixed_part(self, name: str, number: int, offset: int, size: int) -> np.ndarray | None:
        """Returns at most `size` bytes of such weights; None if they are no longer kept."""
        return self._fixed.part(name, number, offset, size)

    def get_trained_agents(self) -> dict[str, dict[str, Any]]:
        """Returns the settings of the agents of saved policies that this learner serves, once they are loaded."""
        return dict(self._fixed.trained_agents)

    def begin(self, incarnation: int, step: int, variables: Sequence[tf.Variable]) -> None:
        """Publishes weights that do not follow from those before, as another incarnation; forgets their losses."""
        self._losses = LossCheck()
        self.weights.begin(incarnation)
        self.weights.publish_if_changed(step, variables)

    def load_fixed(self, policy: Policy) -> None:
        """Reads the fixed policies of earlier incarnations, and takes the first snapshots of `policy`."""
        self._fixed.load()
        self._fixed.take_due(0, policy)

    def take_snapshots(self, environment_steps: int, policy: Policy) -> None:
        """Takes the snapshots of `policy` that are due after so many environment steps, to play against."""
        if self._fixed.takes_snapshots:
            self._fixed.take_due(environment_steps, policy)

    def add_update(self, step: int, update: Update) -> None:
        """Keeps the losses of an update for `checked`."""
        self._losses.add(step, update)

    @contextlib.contextmanager
    def checked(self, step: int) -> Iterator[None]:
        """Checks all losses so far, and adds advice to errors about losses or weights that are not finite.

        Args:
          step: the newest learner step.
        """
        try:
            self._losses.check()
            self.weights.raise_failure()
            yield
        except NotFiniteError as error:
            latest = self._checkpoints.latest()
            kept = "there is no checkpoint yet"
            if latest is not None:
                kept = f"the last checkpoint is that of learner step {step_of(latest):,}"
            raise error.advised(agent_name(self._agent), step, kept) from error

    def publish_if_due(self, step: int, variables: Sequence[tf.Variable]) -> None:
        """Publishes the weights if a client waits for them or so many steps have passed, see `WeightPublisher.due`."""
        if self.weights.due(step):
            with self.checked(step):
                self.weights.publish_if_due(step, variables)

    def publish_newest(self, step: int, variables: Sequence[tf.Variable]) -> None:
        """Publishes the weights unless they are published, where no learner step waits for that."""
        if not self.weights.has(step):
            with self.checked(step):
                self.weights.publish_if_changed(step, variables)

    def publish_final(self, step: int, variables: Sequence[tf.Variable]) -> None:
        """Publishes the final weights, for which the evaluator waits."""
        with self.checked(step):
            self._final = self.weights.publish(step, variables)
