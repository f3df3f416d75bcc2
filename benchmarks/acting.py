"""Environment steps per second of an actor node, relative to a loop that only steps the same environments and acts.

Our side is the actor node of a complete program (coordinator, learner and replay run at the same time in another
process): it steps, acts, tracks episodes, rejects values that are not finite, writes IMPALA's blocks to replay, fetches
weights and reports.  The learner serves its first weights and does not learn.

The limit steps the same environments directly through their libraries, and calls one `tf.function` with the same
network and the same sampling in the fastest possible way (traced once, called with tensors): it takes the observation
and a seed and returns the action.  Nothing is recorded.  Both sides use the TensorFlow settings of actors: one thread.

A figure counts all timesteps of all environments, including those of resets.  The difference between the two rates
gives the microseconds that we add to a timestep of the batch.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Literal, cast

import numpy as np

from ..agents.impala import Impala
from ..data import Layout, Timestep
from ..launch.experiments.experiment import Experiment
from ..launch.node_rules import RULES
from ..replay import SequenceQueue, sequence_signature
from ..settings.nested_settings import from_values
from .harness import Case
from .side import Side

Library = Literal["gymnasium vector", "gymnasium", "procgen", "atari"]

_ENDLESS = 10**9
_SEED = 1


class WriteOnlyQueue(SequenceQueue):
    """A queue that accepts all items and yields none."""

    def tables(self) -> list[Any]:
        import reverb

        (queue,) = super().tables()
        room = 4
        return [
            reverb.Table(
                queue.name,
                sampler=reverb.selectors.Fifo(),
                remover=reverb.selectors.Fifo(),
                max_size=room,
                rate_limiter=reverb.rate_limiters.MinSize(room + 1),
                signature=sequence_signature(
                    self.layout,
                    self.length,
                    self.layout.envs_per_actor,
                    keeps_returns=self.returns_discount is not None,
                ),
            )
        ]


@dataclasses.dataclass(frozen=True)
class RecordingImpala(Impala):
    """IMPALA with a replay that accepts all items and yields none."""

    def make_replay(self, layout: Layout) -> WriteOnlyQueue:
        return WriteOnlyQueue(**vars(super().make_replay(layout)))


def experiment(library: Library, batch_size: int) -> Experiment:
    """Return the experiment whose actor is measured."""
    env, options, torso = {
        "gymnasium vector": ("CartPole-v1", {"vectorized": True}, "mlp"),
        "gymnasium": ("CartPole-v1", {"vectorized": False}, "mlp"),
        "procgen": ("procgen:coinrun", {}, "impala"),
        "atari": ("ALE/Breakout-v5", {}, "nature"),
    }[library]
    return Experiment(
        from_values(
            RecordingImpala,
            {
                "network.torso": torso,
                "network.hidden_sizes": (64, 64),
                "network.head_sizes": (),
                "unroll_length": 20,
                "network.normalize_observations": False,
                "batch_size": batch_size,
            },
        ),
        env,
        env_options=cast(dict[str, Any], options),
        seed=_SEED,
        actors=1,
        envs_per_actor=batch_size,
        evaluator=False,
        max_steps=_ENDLESS,
    )


class OurActor(Side):
    """An actor node, created for each figure so that it does not run while the limit is measured.

    Args:
      library, batch_size: as those of `experiment`.
      seconds: how long it acts for a figure.
      records: whether its episodes are recorded.
      clock: returns the seconds by which a figure is counted.
    """

    def __init__(
        self,
        library: Library,
        batch_size: int,
        seconds: float,
        records: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ):
        from .nodes import Nodes

        run = dataclasses.replace(experiment(library, batch_size), record_episodes=records)
        self._nodes = Nodes(run, others=("coordinator", "learner", "replay", "recorder"))
        self._seconds = seconds
        self._clock = clock

    def measure(self) -> float:
        role: Any = self._nodes.make_node("actor/0")
        role.setup()

        def timesteps() -> int:
            counts = role.collect().counts
            return counts["environment_steps"] + counts["ignored_timesteps"]

        _rate(role.step, timesteps, self._seconds / 4)
        rate = _rate(role.step, timesteps, self._seconds, self._clock)
        role.finish()
        role.context.stop.set()
        return rate

    def close(self) -> None:
        self._nodes.close()


class BareActor(Side):
    """The environments, and a compiled policy that maps observations to actions."""

    def __init__(self, library: Library, batch_size: int, seconds: float):
        run = experiment(library, batch_size)
        self._step = BARE_ENVIRONMENTS[library](batch_size)
        self._act = _compile(run, run.layout())
        self._batch_size = batch_size
        self._seconds = seconds
        self._observation = self._step(None)
        self._timesteps = 0

    def measure(self) -> float:
        def timesteps() -> int:
            return self._timesteps * self._batch_size

        _rate(self._timestep, timesteps, self._seconds / 4)
        return _rate(self._timestep, timesteps, self._seconds)

    def _timestep(self) -> None:
        action = self._act(self._observation, np.array([_SEED, self._timesteps], np.int32))
        self._observation = self._step(action)
        self._timesteps += 1


def _rate(
    step: Callable[[], None],
    timesteps: Callable[[], int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    before, begun = timesteps(), clock()
    while clock() < begun + seconds:
        step()
    return (timesteps() - before) / (clock() - begun)


def _compile(run: Experiment, layout: Layout) -> Any:
    import tensorflow as tf

    from .. import specs

    batch_size, agent = layout.envs_per_actor, run.agent
    policy = agent.make_policy(agent.make_networks(layout), "train")
    slots = tf.range(batch_size)

    def act(observation: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        zeros, no = tf.zeros(batch_size), tf.zeros(batch_size, tf.bool)
        timestep = Timestep(observation, reward=zeros, discount=zeros, first=no, last=no)
        return policy(timestep, (), slots, seed)[0]

    signature = [specs.tensor_spec(layout.spec.observation, (batch_size,)), tf.TensorSpec((2,), tf.int32)]
    compiled = tf.function(act, autograph=False, input_signature=signature).get_concrete_function()
    # A `tf.function` that first inspects its arguments takes twice as long as one that is called with tensors.
    return lambda observation, seed: compiled(tf.constant(observation), tf.constant(seed)).numpy()


def _bare_vector(batch_size: int) -> Callable[[Any], np.ndarray]:
    import gymnasium

    environment = gymnasium.make_vec("CartPole-v1", batch_size, vectorization_mode="vector_entry_point")

    def step(action: Any) -> np.ndarray:
        return environment.reset(seed=_SEED)[0] if action is None else environment.step(action)[0]

    return step


def _bare_scalars(batch_size: int) -> Callable[[Any], np.ndarray]:
    import gymnasium

    environments = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(batch_size)]
    observations = np.zeros((batch_size, 4), np.float32)
    over = [True] * batch_size

    def step(actions: Any) -> np.ndarray:
        choices = [0] * batch_size if actions is None else actions.tolist()
        for env, environment in enumerate(environments):
            if over[env]:
                observations[env] = environment.reset()[0]
                over[env] = False
            else:
                observations[env], _, terminated, truncated, _ = environment.step(choices[env])
                over[env] = terminated or truncated
        return observations

    return step


def _bare_procgen(batch_size: int) -> Callable[[Any], np.ndarray]:
    # Through our adapter's loader, because importing Procgen prints a warning of another library.
    from ..environments.adapters.procgen import _load

    environment = _load()(num=batch_size, env_name="coinrun", rand_seed=_SEED, num_threads=0)

    def step(action: Any) -> np.ndarray:
        if action is not None:
            environment.act(action)
        return environment.observe()[1]["rgb"]

    return step


def _bare_atari(batch_size: int) -> Callable[[Any], np.ndarray]:
    import os

    import ale_py.vector_env

    environment = ale_py.vector_env.AtariVectorEnv(
        "breakout",
        batch_size,
        noop_max=31,
        repeat_action_probability=0.25,
        num_threads=min(batch_size, len(os.sched_getaffinity(0))),
        stack_num=1,
        use_fire_reset=False,
        reward_clipping=False,
        img_height=84,
        img_width=84,
        grayscale=True,
    )

    def step(action: Any) -> np.ndarray:
        observation = environment.reset()[0] if action is None else environment.step(action)[0]
        return observation.reshape(batch_size, 84, 84, 1)

    return step


BARE_ENVIRONMENTS: dict[Library, Callable[[int], Callable[[Any], np.ndarray]]] = {
    "gymnasium vector": _bare_vector,
    "gymnasium": _bare_scalars,
    "procgen": _bare_procgen,
    "atari": _bare_atari,
}
"""Step functions: from actions, or None at the start, to the next observations `[B, ...]`."""


def cases(quick: bool) -> list[Case]:
    sizes: list[tuple[str, Library, int]] = [
        ("cartpole vector", "gymnasium vector", 64),
        ("cartpole scalar", "gymnasium", 64),
        ("procgen", "procgen", 64),
        ("atari", "atari", 16),
    ]
    seconds = 0.5 if quick else 8.0
    return [
        Case(
            name,
            "environment steps/s",
            functools.partial(OurActor, library, batch_size, seconds),
            functools.partial(BareActor, library, batch_size, seconds),
            target=0.85,
            timestep=batch_size,
            rules=RULES["actor"],
        )
        for name, library, batch_size in sizes
    ]
