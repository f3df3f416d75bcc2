"""Random batches for the tests of PPO, with a Gaussian policy or a categorical one."""

import functools

import numpy as np
import small_worlds
from dm_env import specs as dm_specs

from callboard.agents.policies.ppo_policy import PpoExtras
from callboard.agents.ppo import Ppo
from callboard.data import Record, Sample
from callboard.networks.recurrent import LSTMState
from callboard.specs import EnvironmentSpec

OBSERVATION = dm_specs.Array((2,), np.float32)
DISCRETE = EnvironmentSpec(OBSERVATION, dm_specs.DiscreteArray(3))
CONTINUOUS = EnvironmentSpec(OBSERVATION, dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [3.0, np.inf]))

layout_of = functools.partial(small_worlds.layout_of, envs_per_actor=4)


def random_sample(rng, agent: Ppo, spec: EnvironmentSpec, ends: float = 0.3, batch: int | None = None) -> Sample:
    """A batch whose episodes end in every way, with a probability of `ends` at each timestep."""
    steps, batch = agent.unroll_length, batch or agent.batch_size
    first = rng.random((steps + 1, batch)) < ends
    last = rng.random((steps + 1, batch)) < ends
    # After an ignored action the discount is 1; the rest may be anything.
    discount = np.where(last[:-1] | (rng.random((steps, batch)) < 0.7), 1.0, 0.0).astype(np.float32)
    discrete = spec is DISCRETE
    lstm = agent.network.core == "lstm"
    return Sample(
        record=Record(
            observation=rng.normal(size=(steps + 1, batch, 2)).astype(np.float32),
            first=first,
            last=last,
            action=rng.integers(3, size=(steps, batch)).astype(np.int32)
            if discrete
            else rng.normal(size=(steps, batch, 2)).astype(np.float32),
            reward=rng.normal(size=(steps, batch)).astype(np.float32),
            discount=discount,
            extras=PpoExtras(
                log_prob=-1 + 0.5 * rng.normal(size=(steps, batch)),
                gaussian=() if discrete else rng.normal(size=(steps, batch, 2)),
            ),
            version=np.zeros((steps, batch, 2), np.int32),
        ),
        state=LSTMState(*rng.normal(size=(2, batch, agent.network.lstm_size))) if lstm else (),
        discounted_return=(3 * rng.normal(size=(steps, batch))).astype(np.float32),
    )


def of_step(sample: Sample, step: int) -> Sample:
    """The same data of a policy with the weights of a learner step."""
    version = np.zeros_like(sample.record.version)
    version[..., 1] = step
    return sample._replace(record=sample.record._replace(version=version))
