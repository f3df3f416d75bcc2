"""The tasks of all sides, and the counters that are read from outside.

This file runs in the virtual environment of every peer, so it may use only Python 3.9, NumPy and Gymnasium.
"""

import argparse
import mmap
import os
import pathlib
import signal
import struct
import sys
import tempfile
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np

TALLY = "CALLBOARD_PEERS_TALLY"
"""Environment variable with the directory of the counters; every process of a peer inherits it."""

ACTORS, ENVS = 2, 16
"""Number of acting processes, and environments in each."""
UNROLL, BATCH = 20, 640
"""Where rates are measured: timesteps in an unroll, and frames in an update."""
HIDDEN = (64, 64)
"""Layers of the MLP, with tanh, shared by policy and value."""
SPREAD_UNROLL, SPREAD_EPOCHS, SPREAD_MINIBATCHES, SPREAD_RATE = 50, 10, 8, 7e-4
"""PPO on `spread`: timesteps in an unroll, passes over a batch, its parts, and the learning rate."""
PONG_ENVS, PONG_UNROLL, PONG_EPOCHS, PONG_MINIBATCHES, PONG_RATE = 8, 128, 4, 4, 2.5e-4
"""PPO on `pong`, with CleanRL's defaults: environments of the one process that acts, and what `spread` has too."""
FEATURES = 256
"""Units of the dense layer of the IMPALA ResNet."""


class Replay(NamedTuple):
    """What is learned from replay: items in an update, layers of the networks, updates for each environment step."""

    batch: int
    hidden: tuple
    updates_per_step: float
    env: str


REPLAY = {
    "dqn": Replay(128, HIDDEN, 0.5, "CartPole-v1"),
    "sac": Replay(256, (256, 256), 1.0, "Pendulum-v1"),
}
"""The tasks whose agents sample from replay; one process acts, with `ENVS` environments."""

_FRAME_SHAPE = (64, 64, 3)
_FRAME_SECONDS = 60e-6
_ACTIONS = 15
_EPISODE = 1000


class Work(NamedTuple):
    """The task of a peer, which runs until it is ended.

    Attributes:
      task: `cartpole`, `images`, `spread`, `pong`, or one of `REPLAY`.
      goal: `rate`, with the settings that all sides share, or `score`, with the best settings of the peer.
      seed: seed of all randomness.
      directory: for temporary files.
    """

    task: str
    goal: str
    seed: int
    directory: str


def arguments() -> Work:
    """Parse the arguments of this script, and install a SIGTERM handler that exits cleanly."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("cartpole", "images", "spread", "pong", *REPLAY))
    parser.add_argument("goal", choices=("rate", "score"))
    parser.add_argument("seed", type=int)
    parser.add_argument("directory")
    return Work(**vars(parser.parse_args()))


class Count:
    """Counters that only increase, in a file that other processes read at the same time.

    Args:
      kind: prefix of the file's name.
      size: number of counters.
    """

    def __init__(self, kind: str, size: int = 1):
        self._layout = struct.Struct(f"{size}q")
        self._values = [0] * size
        handle, _ = tempfile.mkstemp(prefix=f"{kind}-", dir=os.environ[TALLY])
        os.ftruncate(handle, self._layout.size)
        self._memory = mmap.mmap(handle, self._layout.size)
        os.close(handle)

    def add(self, *more: int) -> None:
        for index, one in enumerate(more):
            self._values[index] += one
        self._layout.pack_into(self._memory, 0, *self._values)


class Trained:
    """Counts the frames and updates of a learner."""

    def __init__(self) -> None:
        self._count = Count("trained", 2)

    def update(self, frames: int) -> None:
        """Record an update of this many frames; a frame that is used several times is counted once."""
        self._count.add(frames, 1)


class Played:
    """Counts environment steps, and records the returns of episodes."""

    def __init__(self) -> None:
        self._count = Count("steps")
        handle, path = tempfile.mkstemp(prefix="episodes-", dir=os.environ[TALLY])
        os.close(handle)
        self._path = pathlib.Path(path)

    def steps(self, steps: int) -> None:
        self._count.add(steps)

    def episode(self, episode_return: float, length: int) -> None:
        """Record an episode that has ended: time on the clock shared by all processes, return, length."""
        with self._path.open("a") as file:
            file.write(f"{time.monotonic()} {episode_return} {length}\n")


class Counted(gymnasium.Wrapper):
    """An environment whose steps and episodes are counted."""

    def __init__(self, environment: Any):
        super().__init__(environment)
        self._played = Played()
        self._return = 0.0
        self._length = 0

    def reset(self, **settings: Any) -> Any:
        self._return, self._length = 0.0, 0
        return self.env.reset(**settings)

    def step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        self._return += float(outcome[1])
        self._length += 1
        self._played.steps(1)
        if outcome[2] or outcome[3]:
            self._played.episode(self._return, self._length)
        return outcome


class CountedScene:
    """A parallel PettingZoo environment whose steps and episodes are counted; returns are sums over all agents."""

    def __init__(self, environment: Any):
        self.environment = environment
        self._played = Played()
        self._return = 0.0
        self._length = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def reset(self, **settings: Any) -> Any:
        self._return, self._length = 0.0, 0
        return self.environment.reset(**settings)

    def step(self, actions: Any) -> Any:
        outcome = self.environment.step(actions)
        self._return += sum(float(reward) for reward in outcome[1].values())
        self._length += 1
        self._played.steps(1)
        if not self.environment.agents:
            self._played.episode(self._return, self._length)
        return outcome


class Frames(gymnasium.Env):
    """Images, actions, episode length and CPU time per step as in Procgen, which supports few Python versions.

    Frames are noise from a small pool.  A step takes 60 µs of CPU time, about as much as Procgen's CoinRun.
    """

    observation_space = gymnasium.spaces.Box(0, 255, _FRAME_SHAPE, np.uint8)
    action_space = gymnasium.spaces.Discrete(_ACTIONS)

    def __init__(self) -> None:
        self._pool = np.random.default_rng(0).integers(0, 256, (64, *_FRAME_SHAPE), np.uint8)
        self._timestep = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._timestep = 0
        return self._frame(), {}

    def step(self, action: Any) -> Any:
        end = time.thread_time() + _FRAME_SECONDS
        while time.thread_time() < end:
            pass
        self._timestep += 1
        reward = float(int(action) == self._timestep % _ACTIONS)
        return self._frame(), reward, False, self._timestep == _EPISODE, {}

    def _frame(self) -> np.ndarray:
        return self._pool[self._timestep % len(self._pool)].copy()


def make(task: str) -> Any:
    """Return one environment of the task, with counters."""
    if task == "images":
        return Counted(Frames())
    if task == "spread":
        from mpe2 import simple_spread_v3

        return CountedScene(simple_spread_v3.parallel_env())
    name = REPLAY[task].env if task in REPLAY else "CartPole-v1"
    return Counted(gymnasium.make(name, disable_env_checker=True))
