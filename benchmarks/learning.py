"""Learner steps per second in a program with a full replay, relative to the same compiled step on one constant batch.

Our side is the learner node of a complete program: it reads from a replay server in another process, makes a step,
sends new priorities if the agent uses them, publishes its weights and converts metrics to numbers.  No actor runs, so
only the replay server shares the CPU with it.

The limit makes the same learner's steps on one batch of that replay, repeatedly, and does nothing else.  An equally
full replay server runs at the same time, idle.

With small networks, a call of the learner makes several updates on both sides; with large ones, a call makes one
update.  The number of threads is left to TensorFlow on both sides, except in one single-threaded case.

Checkpoints, which are written every 30 s by default, are disabled on both sides.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..agents.apex import Apex
from ..agents.impala import Impala
from ..agents.policies.acting import trace_layout
from ..agents.r2d2 import R2D2
from ..agents.sac import Sac
from ..agents.td3 import TD3
from ..data import Layout
from ..errors import CallboardError
from ..launch.experiments.experiment import Experiment
from ..launch.node_rules import learner_rules
from ..launch.processes.devices import make_strategy, take_devices
from ..replay import SequenceQueue, SequenceReplay, TransitionReplay, sequence_signature
from ..settings.nested_settings import from_values
from .harness import Case
from .nodes import Nodes
from .side import Side
from .streams import timesteps_of

_ENVS = 16
_UPDATES_PER_CALL = 8
_ENDLESS = 10**9
_NEVER = 1e8
_SPARE_CALLS = 6
"""Number of calls whose data is prefetched."""
_WARM_UP_CALLS = 3


class EndlessQueue(SequenceQueue):
    """A queue that is never full."""

    def tables(self) -> list[Any]:
        import reverb

        (queue,) = super().tables()
        envs, keeps_returns = self.layout.envs_per_actor, self.returns_discount is not None
        signature = sequence_signature(self.layout, self.length, envs, keeps_returns=keeps_returns)
        return [reverb.Table.queue(queue.name, max_size=10**6, signature=signature)]


@dataclasses.dataclass(frozen=True)
class QueuedImpala(Impala):
    """IMPALA with a queue that is never full."""

    def make_replay(self, layout: Layout) -> EndlessQueue:
        return EndlessQueue(**vars(super().make_replay(layout)))


class _Unlimited:
    """A replay without a limit on samples per insert."""

    def tables(self) -> list[Any]:
        import reverb

        (table,) = super().tables()  # type: ignore[misc]
        options = table.info.sampler_options
        sampled_by = reverb.selectors.Uniform()
        if options.HasField("prioritized"):
            sampled_by = reverb.selectors.Prioritized(options.prioritized.priority_exponent)
        return [
            reverb.Table(
                table.name,
                sampler=sampled_by,
                remover=reverb.selectors.Fifo(),
                max_size=table.info.max_size,
                rate_limiter=reverb.rate_limiters.MinSize(table.info.rate_limiter_info.min_size_to_sample),
                signature=self.item_format.signature(),  # type: ignore[attr-defined]
            )
        ]


class UnlimitedTransitions(_Unlimited, TransitionReplay):
    """Of transitions."""


class UnlimitedSequences(_Unlimited, SequenceReplay):
    """Of sequences."""


class _UnlimitedReplay:
    """An agent with a replay without a limit on samples per insert."""

    def make_replay(self, layout: Layout) -> Any:
        replay = super().make_replay(layout)  # type: ignore[misc]
        kind = UnlimitedSequences if isinstance(replay, SequenceReplay) else UnlimitedTransitions
        return kind(**vars(replay))


@dataclasses.dataclass(frozen=True)
class UnlimitedApex(_UnlimitedReplay, Apex):
    """Ape-X."""


@dataclasses.dataclass(frozen=True)
class UnlimitedR2D2(_UnlimitedReplay, R2D2):
    """R2D2."""


@dataclasses.dataclass(frozen=True)
class UnlimitedSac(_UnlimitedReplay, Sac):
    """SAC."""


@dataclasses.dataclass(frozen=True)
class UnlimitedTD3(_UnlimitedReplay, TD3):
    """TD3."""


class Work(NamedTuple):
    """What is learned, and the amount of work per figure."""

    agent: Any
    env: str
    calls: int
    """Calls of the learner per figure; each makes `agent.updates_per_call` steps."""
    read_once: bool
    """Whether a batch is removed from replay once it has been read."""
    threads: int = 0
    """TensorFlow threads of the learner; 0 leaves the number to TensorFlow."""

    def experiment(self) -> Experiment:
        return Experiment(
            self.agent,
            self.env,
            actors=1,
            envs_per_actor=_ENVS,
            learner_threads=self.threads,
            evaluator=False,
            max_steps=_ENDLESS,
            checkpoint_every=_NEVER,
        )


class Learning(Side):
    """A replay server, and a writer that fills it."""

    def __init__(self, work: Work):
        self.work = work
        self.experiment = work.experiment()
        self.nodes = Nodes(self.experiment, others=("coordinator", "replay"))
        self.nodes.wait_for_replay()
        agent = self.experiment.agent
        self.layout = trace_layout(agent, self.nodes.layout, agent.make_networks(self.nodes.layout))
        self._writer = agent.make_replay(self.layout).writer(self.nodes.replay(), 0)
        self._timesteps = itertools.cycle(timesteps_of(self.layout))
        self._state = tree.map_structure(
            lambda spec: np.zeros((_ENVS, *spec.shape), spec.dtype.as_numpy_dtype), self.layout.state
        )

    def fill(self, items: float) -> None:
        """Write until replay has this many more items."""
        before = self._writer.items_written
        while self._writer.items_written - before < items:
            while not self._writer.ready(0.5):
                pass
            self._writer.append(next(self._timesteps), self._state)
        while not self._writer.ready(0.5, max_pending=0):
            pass

    def items(self, calls: int) -> float:
        """Return the number of items that this many calls of the learner need in replay."""
        agent = self.work.agent
        if not self.work.read_once:
            (table,) = agent.make_replay(self.layout).tables()
            return 0 if self._writer.items_written else table.info.max_size
        return calls * agent.updates_per_call * agent.batch_size / _ENVS

    def steps_per_second(self, call: Callable[[], object]) -> float:
        """Measure learner steps per second over the calls of one figure."""
        for _ in range(_WARM_UP_CALLS):
            call()
        begun = time.perf_counter()
        for _ in range(self.work.calls):
            call()
        return self.work.calls * self.work.agent.updates_per_call / (time.perf_counter() - begun)

    def close(self) -> None:
        self.nodes.close()


class ProgramLearning(Learning):
    """The learner node."""

    def __init__(self, work: Work):
        super().__init__(work)
        self._role: Any = self.nodes.make_node("learner/0")
        self._role.setup()

    def measure(self) -> float:
        self.fill(self.items(self.work.calls + _WARM_UP_CALLS + _SPARE_CALLS))
        return self.steps_per_second(self._learn)

    def _learn(self) -> None:
        if not self._role.learn():
            raise CallboardError("the learner has made no step")


class ConstantLearning(Learning):
    """The agent's learner without its node."""

    def __init__(self, work: Work):
        super().__init__(work)
        agent = self.experiment.agent
        strategy = make_strategy(take_devices(1), [], 0)
        with strategy.scope():
            networks = agent.make_networks(self.nodes.layout)
            self._learner = agent.make_learner(networks, strategy, self.nodes.layout)
        self.fill(self.items(work.calls + _SPARE_CALLS))

        def dataset(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
            return agent.make_replay(self.layout).dataset(self.nodes.replay(), input_context).dataset

        self._kept = iter(strategy.distribute_datasets_from_function(dataset))
        self._batch = itertools.repeat(next(self._kept))

    def measure(self) -> float:
        return self.steps_per_second(lambda: self._learner.step(self._batch))


def work(quick: bool) -> dict[str, Work]:
    """Return the measured cases, by name."""
    size = 1_000 if quick else 20_000
    updates = 2 if quick else _UPDATES_PER_CALL
    mlp = from_values(
        QueuedImpala,
        {
            "batch_size": 32,
            "unroll_length": 20,
            "network.torso": "mlp",
            "network.hidden_sizes": (64, 64),
            "network.head_sizes": (),
            "network.normalize_observations": False,
            "updates_per_call": updates,
        },
    )
    one = dataclasses.replace(mlp, updates_per_call=1)
    small = {"replay.size": size, "replay.min_size": size // 2}
    apex = from_values(
        UnlimitedApex,
        {
            "batch_size": 256,
            "updates_per_call": updates,
            **small,
            "optimizer.name": "rmsprop",
            "huber": None,
            "network.hidden_sizes": (128, 128),
            "network.stream_size": 0,
        },
    )
    r2d2 = from_values(
        UnlimitedR2D2,
        {
            **small,
            "batch_size": 32,
            "burn_in": 10,
            "trace_length": 20,
            "period": 10,
            "network.hidden_sizes": (64,),
            "network.lstm_size": 64,
        },
    )
    continuous = {**small, "batch_size": 256, "updates_per_call": 1}
    return {
        "impala, MLP": Work(mlp, "CartPole-v1", 3 if quick else 250, True),
        "impala, MLP, one update to a call": Work(one, "CartPole-v1", 6 if quick else 1_000, True),
        "impala, MLP, one thread": Work(mlp, "CartPole-v1", 3 if quick else 250, True, threads=1),
        "ape-x, MLP": Work(apex, "CartPole-v1", 3 if quick else 50, False),
        "r2d2, LSTM": Work(r2d2, "CartPole-v1", 3 if quick else 100, False),
        "sac, MLP": Work(from_values(UnlimitedSac, continuous), "Pendulum-v1", 3 if quick else 300, False),
        "td3, MLP": Work(from_values(UnlimitedTD3, continuous), "Pendulum-v1", 3 if quick else 300, False),
        "impala, ResNet": Work(
            from_values(
                QueuedImpala,
                {
                    "batch_size": 32,
                    "unroll_length": 20,
                    "network.torso": "impala",
                    "network.hidden_sizes": (256, 256),
                    "network.head_sizes": (),
                },
            ),
            "procgen:coinrun",
            1 if quick else 8,
            True,
        ),
    }


def cases(quick: bool) -> list[Case]:
    return [
        Case(
            name,
            "learner steps/s",
            functools.partial(ProgramLearning, one),
            functools.partial(ConstantLearning, one),
            target=0.95,
            rules=learner_rules(one.experiment()),
        )
        for name, one in work(quick).items()
    ]
