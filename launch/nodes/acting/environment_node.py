"""The base class of nodes that step environments: the steps that the run allows, episodes, commands and reports."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....agents.agent import Policy
from ....agents.policies.acting import Episode, Stepper
from ....environments import BatchedEnvironment
from ....errors import CallboardError, anything_raised, one_line
from ...experiments.checked_run import Run
from ..episodes.callback_calls import CallbackCalls
from ..episodes.episode_watch import WatchedEnvironment
from ..episodes.metric_windows import EpisodeValues, report_episodes
from ..node import NodeContext, NodeHandle
from ..reports.messages import ControlState, Report
from ..reports.reporting import ReportingNode
from ..reports.step_budget import StepLease
from .actor_view import ActorView
from .prepared_actor import ActorEnvironments

POLL_SECONDS = 0.005
"""Interval at which an actor that has to wait checks whether it may continue."""
_LEASE_SECONDS = 0.02
_LEASES_A_SECOND = 1000
"""Upper bound on lease requests per second over all actors that wait for steps."""


class EnvironmentNode(ReportingNode):
    """A node that steps one batch of environments and reports the results."""

    def __init__(self, context: NodeContext, run: Run, index: int, coordinator: NodeHandle):
        super().__init__(context, coordinator)
        self._run = run
        self._layout = run.layout
        self._index = index
        self._environment: BatchedEnvironment | None = None
        self._stepper: Stepper | None = None
        self._episodes: list[tuple[float, int]] = []
        self._episodes_done = 0
        self._watched: WatchedEnvironment | None = None
        self._calls: CallbackCalls | None = None
        self._control: ControlState | None = None
        # With one thread for all nodes the launcher enforces the step limit.
        self._lease = None if context.cooperative else StepLease()
        self._lease_pause = min(0.5, max(_LEASE_SECONDS, run.placement.actors / _LEASES_A_SECOND))
        self._next_request = 0.0

    @property
    def first_slot(self) -> int:
        """The slot (global index) of the first environment."""
        return self._index * self._run.placement.envs_per_actor

    @property
    def environment_steps(self) -> int:
        """Number of executed actions."""
        return self._stepper.environment_steps if self._stepper else 0

    @property
    def items_written(self) -> int:
        """Number of items written to replay."""
        raise NotImplementedError

    def items_written_for(self, policy: str) -> int:
        """Returns the number of items written to the replay of a policy; the name is empty if the run has one."""
        raise NotImplementedError

    def take_environments(self, environments: ActorEnvironments) -> None:
        """Takes the environments of this incarnation; `finish` closes them."""
        self._environment, _, self._watched, self._calls = environments

    def take_task(self) -> None:
        """Passes the run's task on to the environments if it has changed."""
        control = self.reporter.state.control
        if self._environment is not None and control is not self._control:
            before, self._control = self._control, control
            if control.task != (None if before is None else before.task):
                self._environment.set_task(control.task)

    def between_steps(self) -> None:
        super().between_steps()
        if self.reporter.state.control is not self._control:
            self.take_task()

    def may_step(self) -> bool:
        """Returns whether the run's step limit allows another timestep, which the actor must then take.

        If not, waits a moment, and from time to time requests more steps from the coordinator.
        """
        progress = self.context.progress
        if self._lease is None:
            progress.works("acting")
            return True
        if self.reporter.is_cut_off:
            # Without a coordinator the actor cannot find out that the run has ended.
            progress.waits(f"{self.reporter.coordinator} to answer")
            self.context.stop.wait(POLL_SECONDS)
            return False
        if self._lease.acquire(self.environment_steps):
            if self.environment_steps:
                progress.works("acting")
            else:
                progress.works_slowly("in first forward pass (compiling)")
            return True
        if self.reporter.state.stopping:
            progress.works("idle")
        else:
            progress.waits("steps that are left to do")
        now = time.monotonic()
        if now >= self._next_request and not self.reporter.state.stopping:
            self._next_request = now + self._lease_pause
            self.reporter.report_now()
        self.context.stop.wait(POLL_SECONDS)
        return False

    def renew_lease(self, limit: int) -> None:
        if self._lease is not None:
            self._lease.renew(limit)

    def command(self, method: str) -> Callable[..., Any]:
        commands = {"for_each_environment": self._for_each_environment, "for_each_actor": self._call_with_view}
        return commands[method] if method in commands else super().command(method)

    def policies_here(self) -> Mapping[str, Policy]:
        """Returns the policies that act in this process and learn, by name; the name is empty if the run has one."""
        return {}

    def _call_with_view(self, function: Callable[[ActorView], Any]) -> Any:
        """Returns the result of a function of this actor.

        Raises:
          CallboardError: the function has raised.
        """
        self.context.progress.works_slowly("calling a function on the actor")
        environments = [] if self._environment is None else self._environment.environments
        view = ActorView(
            self._index,
            self.first_slot,
            self.environment_steps,
            self.weights_step(),
            environments,
            self.policies_here(),
        )
        try:
            return function(view)
        except anything_raised() as error:
            raise CallboardError(one_line(error)) from error

    def _for_each_environment(self, function: Callable[[Any], Any]) -> list[Any]:
        """Returns the results of a function by environment of the batch.

        Raises:
          CallboardError: the function has raised.
        """
        batch = self._environment
        if batch is None:
            raise CallboardError("the environments do not exist yet")
        self.context.progress.works_slowly("calling a function on its environments")
        environments, results = batch.environments, []
        as_a_whole = len(environments) != batch.batch_size
        for slot, environment in enumerate(environments, self.first_slot):
            try:
                results.append(function(environment))
            except anything_raised() as error:
                which = f"environments {slot} to {slot + batch.batch_size - 1}" if as_a_whole else f"environment {slot}"
                raise CallboardError(f"{which}: {one_line(error)}") from error
        return results * batch.batch_size if as_a_whole else results

    def add_episodes(self, episodes: Sequence[Episode]) -> None:
        """Keeps finished episodes for the next report."""
        for episode in episodes:
            self._episodes.append((episode.episode_return, episode.length))
            self._episodes_done += 1

    def finish(self) -> None:
        self.reporter.close()
        if self._environment is not None:
            self._environment.close()

    def collect(self) -> Report:
        episodes, self._episodes = self._episodes, []
        if self._stepper is None:
            return Report()
        counts = {
            "environment_steps": self._stepper.environment_steps,
            "ignored_timesteps": self._stepper.ignored_timesteps,
            "episodes": self._episodes_done,
        }
        episode_values: list[EpisodeValues] = []
        if self._watched is not None and self._calls is not None:
            episode_values = report_episodes(self._watched.take_ended())
            counts |= self._calls.counts
        lease = None if self._lease is None else self._lease.request()
        return Report(counts=counts, episodes=episodes, lease=lease, episode_values=episode_values)
