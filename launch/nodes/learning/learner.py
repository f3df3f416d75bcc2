"""The learner node: learns from replay, serves weights and writes checkpoints."""

import contextlib
import functools
import logging
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import launchpad as lp
import numpy as np
import tensorflow as tf

from ....agents.agent_names import agent_name
from ....agents.variables.finite_checks import LossCheck, NotFiniteError
from ....agents.variables.weights import Snapshot
from ....data import Priorities, Update, Version
from ....errors import CallboardError
from ....replay import BatchReader, Heartbeat, PriorityUpdater, ReaderStopped, ReplayDataset, rebuilt_if_changed
from ....tracing_lock import TRACING
from ...experiments.checked_run import Run
from ...experiments.policy_settings import Snapshots, TrainedPolicy
from ...node_names import metric_of
from ...run_directory.checkpoints import Checkpoints, NotWritten, step_of
from ..acting.held_snapshots import Announcement
from ..acting.opponents import Announced, ServedPolicies
from ..coordination.stopping_rules import LEARNER_IS_DONE
from ..node import NodeContext, NodeHandle, Unreachable
from ..reports.messages import Report
from ..reports.reporting import ReportingNode
from ..reports.run_control import own_settings
from ..reports.written_bytes import marked_while_files_grow
from .checkpoint_schedule import CheckpointSchedule
from .learner_commands import LearnerCommands
from .peer_watch import PeerWatch
from .prepared_learner import distributed_batches, iterators, prepare_learner
from .weight_publisher import WeightPublisher

_METRICS_SECONDS = 0.5
_HOLD_SECONDS = 0.1
"""Long-poll timeout of `get_variables`.  Short, because shutdown waits for pending calls."""
_PRIORITIES_SECONDS = 5.0
_RETRY_SECONDS = 10.0
"""Interval between attempts to write a checkpoint after a failure."""
_INLINE_PATIENCE_SECONDS = 10.0
_LAST_STEPS_SECONDS = 2.0
"""How long a learner continues after a limit, to learn from the last data of the actors; after the limit of environment
steps, until it has made all steps that `samples_per_insert` promises."""
_LAST_BATCH_SECONDS = 0.5
"""How long it then waits for another batch."""
_LAST_SAMPLES_SECONDS = 1.5
"""The same, where samples follow from what actors have inserted, who may just be sending it."""
_PEER_SECONDS = 20.0
_PAUSE_SECONDS = 0.02


class LearnerNode(ReportingNode):
    """Runs the agent's learner on data from replay.

    With several learners, each processes a share of every batch, and all hold the same weights.  The first one serves
    the weights, writes checkpoints and reports; the others only take part in its steps.
    """

    achieves_by_steps = False
    served = ("get_variables", "get_part", "final_version", "get_fixed", "get_fixed_part", "get_trained_agents")

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
        self._run = run
        self._rank = rank
        self._peers = peers
        self._experiment = experiment = run.experiment
        self._checkpoints = Checkpoints(run.directory, context.notify, run.experiment.keep_checkpoints)
        self._coordinator = coordinator
        self._replay = replay
        self._replay_handle = self.reporter.replay_handle(replay)
        self._served_policies = ServedPolicies(run.directory, snapshots or {}, trained or {}, context.notify)
        self._takes_snapshots = bool(snapshots)
        self._weights = WeightPublisher(experiment.publish_every_steps)
        self._steps = self._made = self._changes = 0
        self._max_steps = experiment.max_learner_steps or math.inf
        self._is_learning = False
        self._values: dict[str, float] = {}
        self._next_metrics = 0.0
        self._schedule = CheckpointSchedule(
            experiment.checkpoint_every, _RETRY_SECONDS, context.notify, every_steps=experiment.checkpoint_every_steps
        )
        self._ends_since = math.inf
        self._has_caught_up = False
        self._final_version: Version | None = None
        self._last_update: Update | None = None
        self._losses = LossCheck()
        self._priorities: PriorityUpdater | None = None
        self._reader: BatchReader | None = None
        self._peer_watch: PeerWatch | None = None
        self.unreported_steps = 0
        """Environment steps since the last report, where nodes take turns."""
        self._agree: Callable[[tf.Tensor], tf.Tensor] | None = None
        self._agreed = 0.0
        self._catches_up = experiment.agent.make_replay(run.layout).catches_up
        self.dataset: ReplayDataset | None = None

    @property
    def learner_steps(self) -> int:
        """Number of learner steps that this incarnation has made."""
        return self._made

    @property
    def paused(self) -> bool:
        """Whether no step may be made before the run's session continues."""
        limit = self.reporter.state.control.learner_limit
        return limit is not None and self._made >= limit

    @property
    def has_made_all_steps(self) -> bool:
        """Whether `max_learner_steps` are made; the learner makes no others, also after a restart."""
        return self._steps >= self._max_steps

    def get_variables(self, have: Sequence[int] | None, most: int | None = None) -> Snapshot | Announcement | None:
        """Returns the newest weights, or None if there are none other than version `have` within a short wait.

        The long-poll delivers new weights as soon as they exist, not only at the caller's next request.  Weights of
        more than `most` bytes are to be fetched with `get_part`; their number comes in their place.
        """
        patience = 0.0 if self.context.cooperative else _HOLD_SECONDS
        return self._weights.get(have, patience, most)

    def get_part(self, version: Sequence[int], offset: int, size: int) -> np.ndarray | None:
        """Returns at most `size` bytes of the weights that `get_variables` named; None if they are no longer kept."""
        return self._weights.part(version, offset, size)

    def final_version(self) -> tuple[int, int] | None:
        """Returns the version of the final weights; None while the learner is still learning."""
        return None if self._final_version is None else (self._final_version.incarnation, self._final_version.step)

    def get_fixed(self, known: Mapping[str, Sequence[int]], most: int) -> dict[str, Announced]:
        """Returns the weights of fixed policies that this learner serves, see `opponents.ServedPolicies`."""
        return self._served_policies.others_than(known, most)

    def get_fixed_part(self, name: str, number: int, offset: int, size: int) -> np.ndarray | None:
        """Returns at most `size` bytes of such weights; None if they are no longer kept."""
        return self._served_policies.part(name, number, offset, size)

    def get_trained_agents(self) -> dict[str, dict[str, Any]]:
        """Returns the settings of the agents of saved policies that this learner serves, once they are loaded."""
        return dict(self._served_policies.trained_agents)

    def setup(self) -> None:
        progress = self.context.progress
        prepared = self._prepared = prepare_learner(
            self.context, self._run, self._rank, self._peers, self._checkpoints, self._publish_first
        )
        self._steps = prepared.steps
        self._commands = LearnerCommands(
            prepared, self._checkpoints, len(self._peers), self.save_checkpoint, self._publish_changed
        )
        self._served_policies.load()
        self._served_policies.take_due(0, prepared.policy)
        self._schedule.restart(self._steps)
        self.begin_reports()
        if not self.reporter.wait_for(*(handle.name for handle in self._replay)):
            return
        # The coordinator has answered, so what a session had changed before is known.
        self._take_settings()
        self._agreed = prepared.done
        if len(self._peers) > 1 and prepared.live.decays:
            self._agree = tf.function(functools.partial(_mean_of_learners, prepared.strategy), autograph=False)
        self._follow()
        if self._steps and getattr(prepared.learner, "continue_decay", bool)() and self._rank == 0:
            self.context.notify(
                "the learning rate continues where it was, and rises to that of the longer run within a tenth of what "
                "is left"
            )

        progress.waits_for = lambda: "data" if self._seconds_short_of_data() else ""

        def make_batches() -> Any:
            return distributed_batches(
                self._experiment.agent, self._replay_handle, prepared.layout, prepared.strategy, self._take_dataset
            )

        if self.context.cooperative:
            # The launcher calls for a batch only when replay can supply one; a missing batch would block all nodes.
            with TRACING:
                batches = make_batches()
            self._reader = BatchReader(
                iterators(lambda: batches), self.context.stop.is_set, patience=_INLINE_PATIENCE_SECONDS
            )
        else:
            Heartbeat(self._replay_handle, self.context.stop)
            batches_of = rebuilt_if_changed(make_batches, key=lambda: tuple(self._replay_handle.addresses()))
            self._reader = BatchReader(
                iterators(batches_of),
                self._has_learned_all,
                self._replay_incarnation,
                while_waiting=self._while_waiting,
            )

        if len(self._peers) > 1:
            self._peer_watch = PeerWatch(
                self._rank,
                len(self._peers),
                self._waits_in_vain,
                lambda: self._is_learning and self.context.stop.is_set(),
            )

    def between_steps(self) -> None:
        super().between_steps()
        self._take_settings()

    def _part_done(self) -> float:
        """Returns the part of the run that is done, as far as this learner knows."""
        state = self.reporter.state
        return self._experiment.part_done(state.environment_steps + self.unreported_steps, self._steps, state.seconds)

    def _follow(self) -> None:
        """Lets settings that change with the run follow it."""
        # Reports reach learners at different times, and all must make the same step.
        done = self._part_done() if len(self._peers) == 1 else self._agreed
        self._prepared.live.follow(self.reporter.state.environment_steps + self.unreported_steps, self._steps, done)

    def _take_settings(self) -> None:
        """Takes settings that a session has changed."""
        control = self.reporter.state.control
        if control.version != self._changes:
            self._changes = control.version
            self._prepared.live.change(own_settings(self._run.policy, control.settings))

    def step(self) -> None:
        if self._final_version is not None or (self._rank > 0 and self.has_made_all_steps):
            self.context.progress.works("idle")
            if self._schedule.is_due(self._steps) and self._rank == 0:
                self._try_to_save()
                self._schedule.stop()
            self.context.stop.wait(_HOLD_SECONDS)
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
        if self._has_learned_all() and not self.context.stop.is_set():
            self.end_learning()

    def end_learning(self) -> None:
        """Publishes the final weights, for which the evaluator waits."""
        if self._final_version is not None or self._rank > 0:
            return
        if self.has_made_all_steps and not self._schedule.has_written(self._steps):
            # Before the coordinator hears of it, and ends the run: a learner that restarts then has nothing left to do.
            self._try_to_save()
        with self._finite():
            self._final_version = self._weights.publish(self._steps, self._prepared.variables)

    def learn(self) -> bool:
        """Calls the learner once, for one or more learner steps; waits for data.  Returns False if none was made.

        Raises:
          CallboardError: a loss, a gradient or a weight is not finite.
        """
        assert self._reader is not None
        progress = self.context.progress
        if len(self._peers) > 1:
            progress.works_with_others("in learner step with the other learners")
        elif self._last_update is None:
            progress.works_slowly("in first learner step (compiling)")
        else:
            progress.works("in learner step")
        self._follow()
        try:
            update = self._prepared.learner.step(self._reader)
            if self._agree is not None:
                self._agreed = float(self._agree(tf.constant(self._part_done(), tf.float64)))
            self._prepared.frozen.keep()
            if self._takes_snapshots:
                self._served_policies.take_due(self.reporter.state.environment_steps, self._prepared.policy)
        except ReaderStopped:
            return False
        except (tf.errors.UnavailableError, tf.errors.AbortedError):
            if self._peer_watch is not None and self._peer_watch.has_ended_step:
                self._has_caught_up = True
                return False
            if len(self._peers) > 1:
                # Another learner has ended: the launcher is about to end this one too, and to report why.
                if self.context.stop.wait(_PEER_SECONDS):
                    return False
            raise
        if self._last_update is None:
            logging.info("first learner step done")
        if update.priorities is not None:
            self._send_priorities(update.priorities)
        self._steps += update.steps
        self._made += update.steps
        progress.achieves(update.steps)
        if self._rank == 0:
            self._losses.add(self._steps, update)
        if self.context.cooperative and self._experiment.publish_every_steps == 1:
            self._publish_newest()
        elif self._rank == 0 and self._weights.due(self._steps):
            with self._finite():
                self._weights.publish_if_due(self._steps, self._prepared.variables)
        now = time.monotonic()
        if now >= self._next_metrics and not self.context.cooperative:
            self._next_metrics = now + _METRICS_SECONDS
            with self._finite():
                self.take_metrics(update.metrics)
        self._last_update = update
        if self._rank == 0 and self._schedule.is_due(self._steps):
            self._try_to_save()
        return True

    def release(self) -> None:
        if self._reader is not None:
            self._replay_handle.ended.set()
            self._reader.close()
        if self._peer_watch is not None:
            self._peer_watch.close()

    def finish(self) -> None:
        self.release()
        if self._priorities is not None:
            self._priorities.close()
        self.reporter.close()
        if self._rank == 0:
            try:
                self.save_checkpoint()
            except NotWritten as error:
                raise CallboardError(f"the last checkpoint could not be written: {error}") from error

    def report(self) -> None:
        if self._last_update is not None:
            self.take_metrics(self._last_update.metrics)
        super().report()

    def take_metrics(self, metrics: dict[str, Any]) -> None:
        """Converts a step's metrics to plain numbers; waits for the step's computation to end."""
        self._values = {f"learner/{name}": float(value) for name, value in metrics.items()}

    def save_checkpoint(self, keep: bool = False) -> pathlib.Path:
        """Writes a checkpoint of the current state, and returns its path.

        Args:
          keep: whether later checkpoints leave it.

        Raises:
          NotWritten: with the reason.
          CallboardError: a value in it is not finite; earlier checkpoints are kept.
        """
        # Report first, so that the counters include the step of these weights.
        self.reporter.report()
        try:
            sources, control = self._coordinator.client(self.reporter.call_seconds).checkpoint_state()
        except Unreachable:
            self.context.notify("the coordinator does not answer: this checkpoint keeps the counters of the last")
            sources, control = self._checkpoints.counter_sources(), self._checkpoints.control()
        progress, directory = self.context.progress, self._checkpoints.directory
        with self._finite(), marked_while_files_grow(progress, directory, "writing its checkpoint"):
            return self._checkpoints.save(
                self._steps, self._prepared.modules, self._prepared.policy, sources, control, keep
            )

    @contextlib.contextmanager
    def _finite(self) -> Iterator[None]:
        """Checks that all losses were finite, and adds advice to errors about non-finite losses or weights."""
        try:
            self._losses.check()
            self._weights.raise_failure()
            yield
        except NotFiniteError as error:
            latest = self._checkpoints.latest()
            kept = "there is no checkpoint yet"
            if latest is not None:
                kept = f"the last checkpoint is that of learner step {step_of(latest):,}"
            raise error.advised(agent_name(self._experiment.agent), self._steps, kept) from error

    def _try_to_save(self) -> None:
        """Writes a checkpoint; if that fails, training continues and the write is retried later."""
        self._schedule.write(self.save_checkpoint, NotWritten, self._steps)

    def _has_learned_all(self) -> bool:
        """Returns whether the learner has learned from all data up to the run's limit, or is out of time for it."""
        if self.context.stop.is_set() or self.has_made_all_steps:
            return True
        if not self.reporter.state.stopping or self._rank > 0:
            return False
        now = time.monotonic()
        self._ends_since = min(self._ends_since, now)
        ended = now - self._ends_since
        if self._catches_up and self.reporter.state.environment_steps >= self._experiment.max_steps:
            self._has_caught_up |= min(self._seconds_short_of_data(), ended) > _LAST_SAMPLES_SECONDS
        else:
            self._has_caught_up |= self._seconds_short_of_data() > _LAST_BATCH_SECONDS or ended > _LAST_STEPS_SECONDS
        return self._has_caught_up

    def _waits_in_vain(self) -> bool:
        """Returns whether the run ends while another learner has no more data for the step that this one is in.

        The first learner decides it, since it ends learning: the others wait until they are stopped.
        """
        if self._rank > 0 or not self._is_learning or not self.reporter.state.stopping:
            return False
        self._ends_since = min(self._ends_since, time.monotonic())
        if time.monotonic() - self._ends_since < _LAST_SAMPLES_SECONDS or self._seconds_short_of_data():
            return False
        peers = range(1, len(self._peers))
        return any(self.reporter.seconds_short_of_data(peer) > _LAST_SAMPLES_SECONDS for peer in peers)

    def _take_dataset(self, dataset: ReplayDataset) -> None:
        self.dataset = dataset

    def _publish_first(self, variables: Sequence[tf.Variable], steps: int) -> None:
        """Publishes weights that do not follow from those before, as another incarnation."""
        if self._rank == 0:
            self._weights.begin(self.begin_weights(variables))
            self._weights.publish_if_changed(steps, variables)

    def _publish_newest(self) -> None:
        """Publishes the newest weights unless they are, where no learner step waits for that."""
        if self._rank == 0 and not self._weights.has(self._steps):
            with self._finite():
                self._weights.publish_if_changed(self._steps, self._prepared.variables)

    def _while_waiting(self) -> None:
        """Does what is due between steps, while there is no data for the next one."""
        if self._experiment.publish_every_steps == 1:
            self._publish_newest()
        self.between_steps()

    def command(self, method: str) -> Callable[..., Any]:
        """Returns one of the commands of a session, see `LearnerCommands`."""
        return self._commands.by_name.get(method) or super().command(method)

    def _publish_changed(self) -> None:
        """Publishes weights that a command has changed."""
        # The losses of the weights before matter no more.
        self._losses = LossCheck()
        self._publish_first(self._prepared.variables, self._steps)

    def begin_weights(self, variables: Sequence[tf.Variable]) -> int:
        """Returns the incarnation of the weights; a subclass may also assign weights to begin with."""
        return self._checkpoints.next_incarnation()

    def seconds_waited(self) -> dict[str, float]:
        return {} if self._reader is None else {"data": self._reader.total_seconds_waited}

    def collect(self) -> Report:
        counts = {"duplicates": self._replay_handle.received.dropped()}
        short_of_data = self._seconds_short_of_data()
        if self._rank > 0:
            return Report(counts=counts, short_of_data=short_of_data)
        counts["learner_steps"] = self.learner_steps
        counts[metric_of(self._run.policy, "learner_steps")] = self.learner_steps
        scheduled = {f"learner/{name}": value for name, value in self._prepared.live.metrics.items()}
        values = {**scheduled, **self._values, "learner/step": self._steps}
        if self._final_version is not None:
            values[LEARNER_IS_DONE] = 1.0
        if self._priorities is not None:
            values["learner/dropped_priorities"] = self._priorities.counts().dropped
        waits = short_of_data > _LAST_BATCH_SECONDS
        at_rest = self.paused and (waits or not self._is_learning)
        return Report(counts=counts, values=values, short_of_data=short_of_data, at_rest=at_rest)

    def _seconds_short_of_data(self) -> float:
        """Returns how long the learner has been waiting for a batch; 0 while it learns."""
        return 0.0 if self._reader is None else self._reader.seconds_waited

    def _send_priorities(self, priorities: Priorities) -> None:
        if self._priorities is None:
            assert self.dataset is not None
            self._priorities = PriorityUpdater(self._replay_handle, self.dataset.table, *self.dataset.further)
        self._priorities.submit(priorities)
        if self.context.cooperative:
            self._priorities.wait(_PRIORITIES_SECONDS)

    def _replay_incarnation(self) -> object:
        # A dataset over several shards reconnects to each of them by itself, and continues with the others meanwhile.
        return self._replay_handle.incarnation(0) if self._run.layout.shards == 1 else None


def _mean_of_learners(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    """Returns the mean over all learners of a scalar; all must call it after the same learner step."""
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(tf.identity, args=(value,)), axis=None)
