"""The learner node: learns from replay, serves weights and writes checkpoints."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import launchpad as lp
import tensorflow as tf

from ....agents.learning.decaying_rate import continue_decay_of
from ....agents.policies.output_checks import check_update, plain_metrics
from ....data import Update
from ....errors import CallboardError
from ....replay import ReaderStopped
from ....runtime.deadlines import Deadline
from ...experiments.checked_run import Run
from ...experiments.policy_settings import Snapshots, TrainedPolicy
from ...node_names import metric_of
from ...run_directory.checkpoints import Checkpoints, NotWritten
from ...run_directory.metric_names import NAMES_OF_LEARNERS
from ..acting.opponents import ServedPolicies
from ..coordination.stopping_rules import LEARNER_IS_DONE
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from ..reports.reporting import ReportingNode
from .checkpoint_writer import CheckpointWriter
from .end_of_learning import LAST_DATA, PROMISED_STEPS, EndOfLearning
from .followed_settings import FollowedSettings
from .learner_commands import LearnerCommands
from .peer_watch import PeerWatch
from .prepared_learner import prepare_learner
from .publishing import Publishing
from .replay_connection import ReplayConnection
from .weight_publisher import WeightPublisher

_METRICS_SECONDS = 0.5
_PUBLISHED_SECONDS = 0.1
"""Time that a client waits for new weights, and a learner that has ended between two looks at its schedule."""
_PEER_SECONDS = 20.0
_PAUSE_SECONDS = 0.02


class LearnerNode(ReportingNode):
    """Runs the agent's learner on data from replay.

    With several learners, each processes a share of every batch, and all hold the same weights.  The first one serves
    the weights, writes checkpoints and reports; the others only take part in its steps.
    """

    achieves_by_steps = False
    served = Publishing.served + WeightPublisher.served

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        rank: int,
        peers: Sequence[lp.Address],
        coordinator: NodeHandle,
        replay: Sequence[NodeHandle],
        snapshots: Mapping[str, Snapshots] | None = None,
        trained: Mapping[str, TrainedPolicy] | None = None,
    ):
        super().__init__(context, coordinator)
        directory = run.directory
        self._run = run
        self._rank = rank
        self._peers = peers
        self.replay = ReplayConnection(context, run, replay, self.reporter)
        self._checkpoints = checkpoints = Checkpoints(directory, context.notify, run.checkpoints.keep_checkpoints)
        self._publishing = Publishing(
            run.agent,
            checkpoints,
            ServedPolicies(directory, snapshots or {}, trained or {}, context.notify),
            run.checkpoints.publish_every_steps,
            0.0 if context.cooperative else _PUBLISHED_SECONDS,
        )
        self.serve(self._publishing)
        self.serve(self._publishing.weights)
        self._writer = CheckpointWriter(
            context, run.checkpoints, checkpoints, coordinator, self.reporter, self._publishing.checked
        )
        self._end = EndOfLearning()
        self._catches_up = run.agent.make_replay(run.layout).catches_up
        self._steps = 0
        self._is_learning = False
        self._values: dict[str, float] = {}
        self._next_metrics = Deadline(0.0)
        self._last_update: Update | None = None
        self._peer_watch: PeerWatch | None = None
        self.unreported_steps = 0
        """Environment steps since the last report, where nodes take turns."""
        self.reported_learner_steps = 0
        """The `learner_steps` of the last report."""

    @property
    def learner_steps(self) -> int:
        """Number of learner steps that this incarnation has made."""
        return self._steps - self._prepared.steps

    @property
    def paused(self) -> bool:
        """Whether no step may be made before the run's session continues."""
        limit = self.reporter.state.control.learner_limit
        return limit is not None and self.learner_steps >= limit

    @property
    def has_made_all_steps(self) -> bool:
        """Whether `max_learner_steps` are made; the learner makes no others, also after a restart."""
        return self._steps >= (self._run.limits.max_learner_steps or math.inf)

    @property
    def has_ended(self) -> bool:
        """Whether the final weights are published."""
        return self._publishing.final_version() is not None

    def setup(self) -> None:
        prepared = self._prepared = prepare_learner(
            self.context, self._run, self._rank, self._peers, self._checkpoints, self._publish_first
        )
        self._steps = prepared.steps
        learners = len(self._peers)
        self._settings = FollowedSettings(self._run, prepared, self.reporter, learners)
        self._commands = LearnerCommands(
            prepared,
            self._checkpoints,
            learners,
            lambda keep: self._writer.save(self._steps, keep),
            lambda: self._publish_first(prepared.variables, self._steps),
        )
        self._publishing.load_fixed(prepared.policy)
        self._writer.begin(prepared)
        self.begin_reports()
        if not self.reporter.wait_for(*self.replay.shards):
            return
        # The coordinator has answered, so what a session had changed before is known.
        self._settings.take_changes()
        self._settings.follow(self.unreported_steps, self._steps)
        if self._steps and continue_decay_of(prepared.learner) and self._rank == 0:
            self.context.notify(
                "the learning rate continues where it was, and rises to that of the longer run within a tenth of what "
                "is left"
            )
        self.context.progress.waits_for = lambda: "data" if self.replay.short_of_data else ""
        self.replay.open(prepared, self._learning_ends, self._while_waiting)
        self.context.progress.waits("data")
        if learners > 1:
            self._peer_watch = PeerWatch(
                self._rank, learners, self._waits_in_vain, lambda: self._is_learning and self.context.stop.is_set()
            )

    def between_steps(self) -> None:
        super().between_steps()
        self._settings.take_changes()

    def step(self) -> None:
        if self.has_ended or (self._rank > 0 and self.has_made_all_steps):
            self.context.progress.works("idle")
            if self._rank == 0 and self._writer.schedule.is_due(self._steps):
                self._writer.try_to_save(self._steps)
                self._writer.schedule.stop()
            self.context.stop.wait(_PUBLISHED_SECONDS)
            return
        # Set before the pause is checked, or a report in between would call the learner at rest.
        self._is_learning = True
        if self.paused and not self.has_made_all_steps:
            self._is_learning = False
            self.context.progress.waits("the session")
            self._publish_newest()
            self.context.stop.wait(_PAUSE_SECONDS)
            return
        if not self.has_made_all_steps:
            self.learn()
        self._is_learning = False
        if self._learning_ends() and not self.context.stop.is_set():
            self.end_learning()

    def end_learning(self) -> None:
        """Publishes the final weights, for which the evaluator waits."""
        if self.has_ended or self._rank > 0:
            return
        if self.has_made_all_steps:
            # Before the coordinator hears of it, and ends the run: a learner that restarts then has nothing left to do.
            self._writer.save_unless_saved(self._steps)
        self._publishing.publish_final(self._steps, self._prepared.variables)

    def learn(self) -> bool:
        """Calls the learner once, for one or more learner steps; waits for data.  Returns False if none was made.

        Raises:
          CallboardError: a loss, a gradient or a weight is not finite.
        """
        progress, prepared, batches = self.context.progress, self._prepared, self.replay.reader
        assert batches is not None
        if len(self._peers) > 1:
            progress.works_with_others("in learner step with the other learners")
        elif self._last_update is None:
            progress.works_slowly("in first learner step (compiling)")
        else:
            progress.works("in learner step")
        self._settings.follow(self.unreported_steps, self._steps)
        try:
            update = prepared.learner.step(batches)
            self._settings.agree(self.unreported_steps, self._steps)
            prepared.frozen.keep()
            self._publishing.take_snapshots(self.reporter.state.environment_steps, prepared.policy)
        except ReaderStopped:
            return False
        except (tf.errors.UnavailableError, tf.errors.AbortedError):
            if self._peer_watch is not None and self._peer_watch.has_ended_step:
                self._end.give_up()
                return False
            if len(self._peers) > 1:
                # Another learner has ended: the launcher is about to end this one too, and to report why.
                if self.context.stop.wait(_PEER_SECONDS):
                    return False
            raise
        self._take_update(update)
        return True

    def _take_update(self, update: Update) -> None:
        """Counts learner steps, and does what follows from them: priorities, weights, metrics and checkpoints."""
        if self._last_update is None:
            logging.info("first learner step done")
        check_update(self._prepared.learner, update)
        self._steps += update.steps
        self.context.progress.achieves(update.steps)
        if self._rank == 0:
            self._publishing.add_update(self._steps, update)
        if update.priorities is not None:
            self._with_losses_first(lambda: self.replay.send(update.priorities))
        if self._rank == 0:
            if self.context.cooperative and self._run.checkpoints.publish_every_steps == 1:
                self._publish_newest()
            else:
                self._publishing.publish_if_due(self._steps, self._prepared.variables)
        if self._next_metrics.has_passed and not self.context.cooperative:
            self._next_metrics.restart(_METRICS_SECONDS)
            with self._publishing.checked(self._steps):
                self._take_metrics(update)
        self._last_update = update
        if self._rank == 0 and self._writer.schedule.is_due(self._steps):
            self._writer.try_to_save(self._steps)

    def _with_losses_first(self, priorities: Callable[[], None]) -> None:
        """Calls what raises for wrong priorities; raises that a loss is not finite instead, which is their cause."""
        try:
            priorities()
        except CallboardError:
            with self._publishing.checked(self._steps):
                raise

    def release(self) -> None:
        self.replay.release()
        if self._peer_watch is not None:
            self._peer_watch.close()

    def finish(self) -> None:
        self.release()
        self.replay.close()
        self.reporter.close()
        if self._rank == 0:
            try:
                self._writer.save(self._steps)
            except NotWritten as error:
                raise CallboardError(f"the last checkpoint could not be written: {error}") from error
        self._with_losses_first(self.replay.raise_failure)

    def report(self) -> None:
        if self._last_update is not None:
            self._take_metrics(self._last_update)
        super().report()

    def command(self, method: str) -> Callable[..., Any]:
        """Returns one of the commands of a session, see `LearnerCommands`."""
        return self._commands.by_name.get(method) or super().command(method)

    def begin_weights(self, variables: Sequence[tf.Variable]) -> int:
        """Returns the incarnation of the weights; a subclass may also assign weights to begin with."""
        return self._checkpoints.next_incarnation()

    def seconds_waited(self) -> dict[str, float]:
        waited = self.replay.seconds_waited
        return {} if waited is None else {"data": waited}

    def collect(self) -> Report:
        counts = {"duplicates": self.replay.duplicates}
        short_of_data = self.replay.short_of_data
        if self._rank > 0:
            return Report(counts=counts, short_of_data=short_of_data)
        self.reported_learner_steps = counts["learner_steps"] = self.learner_steps
        counts[metric_of(self._run.policy, "learner_steps")] = self.learner_steps
        values = {**self._settings.metrics, **self._values, "learner/step": self._steps}
        if self.has_ended:
            values[LEARNER_IS_DONE] = 1.0
        dropped = self.replay.dropped_priorities
        if dropped is not None:
            values["learner/dropped_priorities"] = dropped
        at_rest = self.paused and (short_of_data > LAST_DATA.without_data or not self._is_learning)
        return Report(counts=counts, values=values, short_of_data=short_of_data, at_rest=at_rest)

    def _learning_ends(self) -> bool:
        """Ends learning if that is due; returns whether this node makes no other step."""
        if self.context.stop.is_set() or self.has_made_all_steps:
            return True
        # The first learner decides for all: the others wait until they are stopped.
        state = self.reporter.state
        if not state.stopping or self._rank > 0:
            return False
        owes_steps = self._catches_up and state.environment_steps >= self._run.limits.max_steps
        self._end.begin()
        self._end.update(self.replay.short_of_data, PROMISED_STEPS if owes_steps else LAST_DATA)
        return self._end.is_over

    def _waits_in_vain(self) -> bool:
        """Returns whether this step cannot end, since the run stops and another learner has no data for it."""
        if self._rank > 0 or not self._is_learning or not self.reporter.state.stopping:
            return False
        self._end.begin()
        learners = self.reporter.learners_of()
        peers = [learners.short_of_data(peer) for peer in range(1, len(self._peers))]
        return self._end.leaves_step(self.replay.short_of_data, peers)

    def _while_waiting(self) -> None:
        """Publishes weights and answers commands while there is no data for the next step."""
        if self._run.checkpoints.publish_every_steps == 1:
            self._publish_newest()
        self.between_steps()

    def _publish_first(self, variables: Sequence[tf.Variable], steps: int) -> None:
        """Publishes weights that do not follow from those before, as another incarnation."""
        if self._rank == 0:
            self._publishing.begin(self.begin_weights(variables), steps, variables)

    def _publish_newest(self) -> None:
        if self._rank == 0:
            self._publishing.publish_newest(self._steps, self._prepared.variables)

    def _take_metrics(self, update: Update) -> None:
        """Converts a step's metrics to plain numbers; waits for the step's computation to end."""
        values = plain_metrics(self._prepared.learner, update.metrics, NAMES_OF_LEARNERS)
        self._values = {f"learner/{name}": value for name, value in values.items()}
