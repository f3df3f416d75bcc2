"""The actor node of central inference: steps its environments and gets actions from an inference node."""

import logging
from typing import Any

import tree

from ....agents.acting import Stepper, policy_seed
from ...experiments.checked_run import Run
from ..node import NodeContext, NodeHandle, Unreachable
from .environment_node import EnvironmentNode
from .timestep_codec import TimestepCodec

_CALL_SECONDS = 5.0
_RETRY_SECONDS = 0.1


class RemoteActorNode(EnvironmentNode):
    """Holds no network: sends its timesteps to an inference node, which chooses actions and writes to replay."""

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        index: int,
        coordinator: NodeHandle,
        inference: NodeHandle,
        recorder: NodeHandle | None = None,
    ):
        super().__init__(context, run, index, coordinator, recorder)
        self._inference = inference
        self._timesteps = TimestepCodec(run.layout)
        self._incarnation = self._restarts = self._seed = self._number = 0
        self._packed = b""

    @property
    def items_written(self) -> int:
        return self._inference.client(_CALL_SECONDS).items_written(self._index)

    def setup(self) -> None:
        incarnation = self.reporter.incarnation()
        if incarnation is None:
            return
        self._incarnation = incarnation
        self._begin_episodes(0)
        environment = self.make_environment(incarnation)
        self.begin_reports()
        if not self.reporter.wait_for(self._inference.name):
            return
        self._client: Any = self._inference.client(_CALL_SECONDS)
        self.take_task()
        self._stepper = Stepper(environment)
        self._packed = self._timesteps.pack(self._stepper.timestep)

    def step(self) -> None:
        """Takes one timestep if the inference node has an action for it."""
        stepper = self._stepper
        if stepper is None:
            return
        self.context.progress.waits(self._inference.name)
        try:
            known, action = self._client.act(*self._newest())
        except Unreachable as error:
            logging.warning("%s does not answer: %s", self._inference.name, error)
            self._client = self._inference.client(_CALL_SECONDS)
            self.context.stop.wait(_RETRY_SECONDS)
            return
        if not known:
            # The inference node was restarted and has lost the state before the newest observations.
            stepper.begin()
            self._begin_episodes(self._restarts + 1)
            self._packed = self._timesteps.pack(stepper.timestep)
        elif action is not None and self.may_step():
            episodes = stepper.step(tree.unflatten_as(self._layout.spec.action, action))
            self._number += 1
            self._packed = self._timesteps.pack(stepper.timestep)
            self.add_episodes(episodes)
            if self.context.cooperative:
                # Write the record before the other nodes take their turns.
                self._client.observe(*self._newest())

    def _newest(self) -> tuple[int, str, int, int, bytes]:
        """Returns the newest timestep as arguments of `InferenceNode.act`."""
        return self._index, f"{self.context.incarnation_id}.{self._restarts}", self._seed, self._number, self._packed

    def _begin_episodes(self, restarts: int) -> None:
        """Restarts the numbering of timesteps at 0, with a new seed for the actions."""
        self._restarts, self._number = restarts, 0
        self._seed = policy_seed(self._experiment.seed, self.first_slot, self._incarnation, restarts)
