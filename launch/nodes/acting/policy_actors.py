"""Acting for one policy in an actor node: with the policy and a writer, or through an inference node.

A policy actor acts for all slots of its policy.  Its methods are called in the order `ready`, `act`, `record`.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

import tree

from ....agents.agent import Agent, Policy
from ....agents.policies.acting import PolicyRecorder, policy_seed, trace_layout
from ....agents.variables.weights import WeightClient
from ....data import Nest, Timestep
from ....replay import Heartbeat, ReplayHandle
from ....runtime.deadlines import Deadline
from ...experiments.checked_run import Run
from ..node import NodeContext, NodeHandle, Unreachable
from ..reports.reporting import KnownLearners
from .actor_writer import ActorWriter
from .compiled_policies import compile_policy
from .timestep_codec import TimestepCodec
from .weight_fetching import CALL_SECONDS, fetch_in_background, wait_for_weights
from .weight_relay import RelayedLearner

_RETRY_SECONDS = 0.1
_RENEWAL_SECONDS = 1.0
"""Time after which an actor begins with the weights that it has: the learner may be away, or have stopped."""


class PolicyActor(Protocol):
    """Acts for the slots of a policy that learns."""

    def wait_for_weights(self) -> bool:
        """Waits for the first weights, if it needs any; returns False if the run stops first."""

    def connect(self) -> None:
        """Connects to replay, if it writes to it; its shard must have started."""

    def ready(self, timestep: Timestep, mark_waiting: Callable[[str], None]) -> bool:
        """Returns whether it can act on the timestep now; it may wait for a moment."""

    def act(self, timestep: Timestep) -> Nest:
        """Returns the actions for the timestep, for which `ready` has returned True."""

    def record(self, following: Timestep) -> None:
        """Takes the timestep that followed the actions."""

    def begin(self, timestep: Timestep) -> None:
        """Takes the first timestep, also after all environments have been reset."""

    def send_remaining(self) -> None:
        """Sends what it has kept for a larger message, where no timestep follows for a while.  Never blocks."""

    def close(self) -> None:
        """Closes the connection to replay; unconfirmed items are lost."""

    @property
    def lost(self) -> bool:
        """Whether the state before the newest observations is lost, so that all environments must be reset."""

    @property
    def items_written(self) -> int:
        """Number of items written to replay."""

    @property
    def seconds_waited(self) -> float | None:
        """Seconds for which replay has kept it from acting; None if it does not write to replay."""

    @property
    def policy(self) -> Policy | None:
        """The policy, with the weights that were fetched last; None if it acts elsewhere.

        The caller may change the weights until newer ones are fetched.
        """

    @property
    def weights_step(self) -> int | None:
        """Learner step of the weights; None if they are not here."""


class LocalPolicyActor:
    """Computes the actions here, with weights from the learner, and writes the records to replay.

    Args:
      run: the policy's run, see `Run.of_policy`.
      index: index of the actor.
      incarnation: number of earlier incarnations of the actor.
      context: context of the actor.
      learner: handle of the policy's learner.
      replay: the policy's replay shards.
      learners: the policy's learners, as far as they are known.
      goal_rewards: the environment's rewards for other goals, if the agent's replay needs them.
    """

    lost = False

    def __init__(
        self,
        run: Run,
        index: int,
        incarnation: int,
        context: NodeContext,
        learner: NodeHandle,
        replay: ReplayHandle,
        learners: KnownLearners,
        goal_rewards: Any = None,
    ):
        self._run = run
        self._index = index
        self._context = context
        self._learner = RelayedLearner(learner, run.start, run.layout.actors, context)
        self._replay = replay
        self._learners = learners
        agent, layout = run.agent, run.layout
        networks = self._networks = agent.make_networks(layout)
        slots = run.placement.envs_per_actor
        # One thread repeats itself, and what inference nodes compute, to the bit.
        arrays = not context.cooperative
        self._policy = compile_policy(run.acting, layout, networks, "train", index * slots, slots, incarnation, arrays)
        self._layout = trace_layout(agent, layout, networks)._replace(goal_rewards=goal_rewards)
        self._weights = WeightClient(self._learner.client(CALL_SECONDS), self._policy.policy.variables)
        # A writer of the agent's own may compute something with the networks.
        self._writer_reads_variables = type(agent).make_writer is not Agent.make_writer
        self._writer: ActorWriter | None = None
        self._recorder: PolicyRecorder | None = None
        self._renewal: Deadline | None = None

    @property
    def policy(self) -> Policy:
        self._weights.assign()
        self._policy.forget()
        return self._policy.policy

    def wait_for_weights(self) -> bool:
        came = wait_for_weights(self._weights, self._learner, self._context)
        if came:
            self._use_weights()
        return came

    def connect(self) -> None:
        self._writer = ActorWriter(
            self._run.agent,
            self._layout,
            self._index,
            self._replay,
            self._learners,
            self._networks,
        )
        self._recorder = PolicyRecorder(self._policy, self._writer)
        if not self._context.cooperative:
            Heartbeat(self._replay, self._context.stop, [self._layout.shard_of(self._index)])
            fetch_in_background(self._weights, self._learner, lambda: self._learner.pause, self._context)

    def begin(self, timestep: Timestep) -> None:
        pass

    def ready(self, timestep: Timestep, mark_waiting: Callable[[str], None]) -> bool:
        assert self._writer is not None
        if not self._writer.caught_up():
            mark_waiting("replay to take data")
            return False
        if self._context.cooperative:
            self._weights.fetch()
        elif self._awaits_renewed_weights():
            mark_waiting("newer weights")
            return False
        if self._weights.take():
            self._use_weights()
        assert self._weights.version is not None
        if not self._writer.may_act(self._weights.version):
            self._weights.need_newer()
            mark_waiting("newer weights")
            return False
        return True

    def act(self, timestep: Timestep) -> Nest:
        assert self._recorder is not None and self._weights.version is not None
        return self._recorder.act(timestep, self._weights.version)

    def record(self, following: Timestep) -> None:
        assert self._recorder is not None and self._writer is not None
        self._recorder.record(following)
        if self._writer.count_timestep():
            self._recorder.end_sequence(following)
        if self._context.cooperative:
            self._writer.flush(self._context.stop)

    def _awaits_renewed_weights(self) -> bool:
        """Returns whether to wait for weights that are newer than those fetched before the queue had room.

        They are as old as the wait was long.  The learner has data for its next step, after which it has newer ones.
        """
        assert self._writer is not None
        if self._writer.take_waited_for_room():
            self._weights.renew()
            self._renewal = Deadline(_RENEWAL_SECONDS)
        if self._renewal is None:
            return False
        if not (self._weights.waiting or self._renewal.has_passed):
            return True
        self._renewal = None
        return False

    def _use_weights(self) -> None:
        self._policy.use(self._weights.values)
        if self._policy.reads_variables or self._writer_reads_variables:
            self._weights.assign()

    def send_remaining(self) -> None:
        if self._writer is not None:
            self._writer.send_remaining()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    @property
    def items_written(self) -> int:
        return 0 if self._writer is None else self._writer.items_written

    @property
    def seconds_waited(self) -> float:
        return 0.0 if self._writer is None else self._writer.seconds_waited

    @property
    def weights_step(self) -> int | None:
        return None if self._weights.version is None else self._weights.version.step


class RemotePolicyActor:
    """Sends the timesteps to an inference node, which chooses the actions and writes to replay.

    Args:
      run: the policy's run, see `Run.of_policy`.
      index: index of the actor.
      incarnation: number of earlier incarnations of the actor.
      context: context of the actor.
      inference: handle of the inference node.
    """

    seconds_waited = policy = weights_step = None

    def __init__(self, run: Run, index: int, incarnation: int, context: NodeContext, inference: NodeHandle):
        self._run = run
        self._index = index
        self._incarnation = incarnation
        self._context = context
        self._inference = inference
        self._client: Any = inference.client(CALL_SECONDS)
        self._timesteps = TimestepCodec(run.layout)
        self._restarts = -1
        self._seed = self._number = 0
        self._packed = b""
        self._action: Nest = None
        self.lost = False

    def wait_for_weights(self) -> bool:
        return True  # The inference node has them.

    def connect(self) -> None:
        pass  # The inference node writes to replay.

    def begin(self, timestep: Timestep) -> None:
        self._restarts, self._number, self.lost, self._action = self._restarts + 1, 0, False, None
        first_slot = self._index * self._run.placement.envs_per_actor
        self._seed = policy_seed(self._run.placement.seed, first_slot, self._incarnation, self._restarts)
        self._packed = self._timesteps.pack(timestep)

    def ready(self, timestep: Timestep, mark_waiting: Callable[[str], None]) -> bool:
        if self._action is not None:
            return True
        mark_waiting(self._inference.name)
        try:
            known, leaves = self._client.act(*self._newest())
        except Unreachable as error:
            logging.warning("%s does not answer: %s", self._inference.name, error)
            self._client = self._inference.client(CALL_SECONDS)
            self._context.stop.wait(_RETRY_SECONDS)
            return False
        self.lost = not known
        if leaves is not None:
            self._action = tree.unflatten_as(self._run.layout.spec.action, leaves)
        return self._action is not None

    def act(self, timestep: Timestep) -> Nest:
        action, self._action = self._action, None
        return action

    def record(self, following: Timestep) -> None:
        self._number += 1
        self._packed = self._timesteps.pack(following)
        if self._context.cooperative:
            # Write the record before the other nodes take their turns.
            self._client.observe(*self._newest())

    def send_remaining(self) -> None:
        pass  # The inference node writes to replay.

    def close(self) -> None:
        pass

    @property
    def items_written(self) -> int:
        return self._inference.client(CALL_SECONDS).items_written(self._index)

    def _newest(self) -> tuple[int, str, int, int, bytes]:
        """Returns the newest timestep as arguments of `InferenceNode.act`."""
        return self._index, f"{self._context.incarnation_id}.{self._restarts}", self._seed, self._number, self._packed
