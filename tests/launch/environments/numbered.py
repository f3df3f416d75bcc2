"""Timesteps that carry their origin, and agents whose learners log what they have learned from."""

import dataclasses
import operator
import os

import gymnasium
import numpy as np
import tensorflow as tf
import tree

from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.r2d2 import R2D2
from callboard.agents.sac import Sac

_SCALE = 2.0**16
_REWARDS = 7


class Numbered(gymnasium.Env):
    """Observes who it is, in two halves of a number that no other has; the number of its step; and the last action.

    All of it exactly, in float32, but for actions that are no whole numbers.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space: gymnasium.spaces.Space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._identity = np.frombuffer(os.urandom(4), np.uint16)
        self._steps = 0

    def reset(self, seed=None, options=None):
        self._steps += 1
        return self._observe(0.0), {}

    def step(self, action):
        self._steps += 1
        return (
            self._observe(float(np.ravel(action)[0])),
            float(self._steps % _REWARDS),
            self._steps % 100 == 0,
            False,
            {},
        )

    def _observe(self, action):
        number = np.array([*self._identity, self._steps], np.float32) / np.float32(_SCALE)
        return np.append(number, np.float32(action))


class NumberedContinuous(Numbered):
    """With an action for agents that need a continuous one."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


@dataclasses.dataclass(frozen=True)
class Logged:
    """Makes an agent append a line to `learned_log` for each sequence that it learns from.

    `environment step key shard window fault`: of the first timestep who its environment is, and the number of its step
    there; the item's key and shard, 0 for queues; which window of an item of a whole batch it is, 0 for others; and
    what is wrong with the sequence: `-`, `torn` where its timesteps do not follow each other, `action` or `reward`
    where these are not those that led to the next timestep, `state` where the state of an environment's first timestep
    is not fresh.

    A learner logs what its own devices learn from.
    """

    learned_log: str = "learned.txt"

    def make_learner(self, networks, strategy, layout):
        learner = super().make_learner(networks, strategy, layout)
        step = learner.step

        def step_and_log(batches):
            batch = next(batches)
            leaves = [map(np.asarray, strategy.experimental_local_results(leaf)) for leaf in tree.flatten(batch)]
            shares = [tree.unflatten_as(batch, share) for share in zip(*leaves, strict=True)]
            updates = [update for share in shares for update in _updates(share)]
            lines = "".join(f"{' '.join(map(str, line))}\n" for update in updates for line in _lines(update))
            with open(self.learned_log, "ab", buffering=0) as log:  # At once: a learner may be killed here.
                log.write(lines.encode())
            return step(iter([batch]))

        learner.step = step_and_log
        return learner


def _updates(sample):
    """The batches of a call, `[T, B]`, which are stacked if they are several."""
    reward = sample.record.reward
    if reward.ndim == 2:
        return [sample]
    return [tree.map_structure(operator.itemgetter(index), sample) for index in range(len(reward))]


def _lines(sample):
    record = sample.record
    low, high, number = np.rint(record.observation[..., :3] * _SCALE).astype(int).transpose(2, 0, 1)
    environment = low + high * int(_SCALE)
    action_tm1 = record.observation[..., 3]
    # After a termination there is nothing that follows.
    follows = ~record.last[:-1] & ~record.first[1:] & (record.discount > 0)
    torn = ~record.last[:-1] & (record.discount > 0)
    torn &= (environment[1:] != environment[:-1]) | (number[1:] != number[:-1] + 1)
    action = follows & (np.abs(record.action.reshape(follows.shape) - action_tm1[1:]) > 1e-5)
    reward = follows & (record.reward != number[1:] % _REWARDS)
    core = tree.flatten(getattr(sample.state, "core", sample.state))
    stale = np.any([np.abs(leaf).reshape(len(leaf), -1).any(axis=1) for leaf in core], axis=0) & (number[0] == 1)
    names = ("torn", "action", "reward")
    faults = dict(zip(names, (fault.any(axis=0) for fault in (torn, action, reward)), strict=True))
    faults["state"] = stale
    for index in range(number.shape[1]):
        key, shard = (sample.info.key[index], sample.info.shard[index]) if sample.info != () else (0, 0)
        window = 0 if sample.info == () or sample.info.env == () else sample.info.env[index]
        fault = next((name for name, found in faults.items() if np.broadcast_to(found, number[0].shape)[index]), "-")
        yield environment[0, index], number[0, index], key, shard, window, fault


@dataclasses.dataclass(frozen=True)
class LoggedImpala(Logged, Impala):
    """IMPALA that logs what it learns from."""


@dataclasses.dataclass(frozen=True)
class LoggedApex(Logged, Apex):
    """Ape-X that logs what it learns from; windows have the priority 1 at first, then one by what they begin with."""

    def first_priority(self, record):
        return np.ones(record.reward.shape[1], np.float32)

    def loss(self, networks, sample, seed=None):
        output = super().loss(networks, sample, seed)
        low, high, step = tf.unstack(tf.cast(tf.round(sample.record.observation[0, :, :3] * _SCALE), tf.int64), axis=-1)
        own = 2 + (low + high * int(_SCALE) + 7 * step) % 101 / 101
        return output._replace(priorities=tf.cast(own, tf.float32))


@dataclasses.dataclass(frozen=True)
class LoggedR2D2(Logged, R2D2):
    """R2D2 that logs what it learns from."""


@dataclasses.dataclass(frozen=True)
class LoggedSac(Logged, Sac):
    """SAC that logs what it learns from."""
