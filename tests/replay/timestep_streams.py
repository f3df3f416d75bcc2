"""Streams of timesteps that number themselves, and what should be cut from them, worked out timestep by timestep."""

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from callboard import specs
from callboard.data import Layout, Record

SPEC = specs.EnvironmentSpec(
    observation={"eye": dm_specs.BoundedArray((2, 3, 2), np.uint8, 0, 255), "body": dm_specs.Array((2,), np.float32)},
    action=dm_specs.DiscreteArray(5),
)
FRAME = SPEC.observation["eye"].shape

# How an episode ends: with a final observation or without (a reset in the same step), terminated or not.
ENDS = {
    "termination": dict(shown=True, discount=0.0),
    "time limit": dict(shown=True, discount=1.0),
    "termination, same-step reset": dict(shown=False, discount=0.0),
    "cut off, same-step reset": dict(shown=False, discount=1.0),
}


def layout(envs=3, actors=1, shards=1, max_steps=10**6, spec=SPEC, state=()):
    flag, number = tf.TensorSpec((), tf.bool), tf.TensorSpec((), tf.float32)
    record = Record(
        observation=specs.tensor_spec(spec.observation),
        first=flag,
        last=flag,
        action=tf.TensorSpec((), tf.int32),
        reward=number,
        discount=number,
        extras={"q": tf.TensorSpec((2,), tf.float32)},
        version=tf.TensorSpec((2,), tf.int32),
    )
    return Layout(
        spec=spec,
        envs_per_actor=envs,
        actors=actors,
        shards=shards,
        replicas=1,
        seed=1,
        max_steps=max_steps,
        record=record,
        state=state,
    )


def frames_layout(envs=8):
    """Of Atari's gray frames."""
    spec = specs.EnvironmentSpec(dm_specs.BoundedArray((84, 84, 1), np.uint8, 0, 255), dm_specs.DiscreteArray(5))
    return layout(envs, spec=spec)


def stream(envs, timesteps, ends=tuple(ENDS), seed=0, longest=9, first=True):
    """A list of `timesteps` records of `envs` environments, whose episodes end in all of the ways `ends`.

    The body's observation is `[env, timestep]`, and the eye's channels hold the timestep and the environment.
    """
    rng = np.random.default_rng(seed)
    begins = [first] * envs
    left = [int(rng.integers(1, longest)) for _ in range(envs)]
    kind = [ENDS[ends[rng.integers(len(ends))]] for _ in range(envs)]
    records = []
    for timestep in range(timesteps):
        record = Record(
            observation={
                "eye": np.zeros((envs, *FRAME), np.uint8),
                "body": np.array([[env, timestep] for env in range(envs)], np.float32),
            },
            first=np.array(begins),
            last=np.zeros(envs, bool),
            action=rng.integers(5, size=envs).astype(np.int32),
            reward=rng.normal(size=envs).astype(np.float32),
            discount=np.ones(envs, np.float32),
            extras={"q": rng.normal(size=(envs, 2)).astype(np.float32)},
            version=np.full((envs, 2), timestep, np.int32),
        )
        for env in range(envs):
            record.observation["eye"][env, ..., 0] = timestep
            record.observation["eye"][env, ..., 1] = env
            begins[env] = False
            if left[env] == 0:
                # The final observation was shown in this timestep, and the next one begins an episode.
                record.last[env] = True
            elif left[env] == 1:
                record.discount[env] = kind[env]["discount"]
            if left[env] == 0 or (left[env] == 1 and not kind[env]["shown"]):
                begins[env] = True
                left[env] = int(rng.integers(1, longest))
                kind[env] = ENDS[ends[rng.integers(len(ends))]]
            else:
                left[env] -= 1
        records.append(record)
    return records


def windows(records, env, steps):
    """What the windows of one environment hold, by first timestep: lists of timesteps and whether the last one
    terminated.

    A window's timesteps are those whose transitions it holds, and then the one to bootstrap from, unless it terminated.
    """
    found = {}
    for start in range(len(records)):
        timesteps: list[int] = []
        terminated = False
        timestep = start
        while len(timesteps) < steps and not records[timestep].last[env]:
            terminated = records[timestep].discount[env] == 0
            if terminated:
                timesteps.append(timestep)
                break
            if timestep + 1 == len(records) or records[timestep + 1].first[env]:
                break
            timesteps.append(timestep)
            timestep += 1
        if timesteps:
            found[start] = (timesteps if terminated else [*timesteps, timestep], terminated)
    return found


def stacked(records, env, timestep, stack):
    """The eye's `stack` newest frames at a timestep, with the episode's first in place of those that are missing."""
    chosen = [timestep]
    while len(chosen) < stack:
        chosen.insert(0, chosen[0] if records[chosen[0]].first[env] else chosen[0] - 1)
    return np.concatenate([records[t].observation["eye"][env] for t in chosen], axis=-1)
