"""Sequences cut at random by every kind of end, for the tests of this folder."""

import numpy as np


def random_timesteps(rng, steps, batch, ends=0.3):
    """first, last `[steps + 1, batch]` and the environment's discount `[steps, batch]` of random episodes.

    Columns 0, 2, .. show final observations in a timestep of their own; columns 1, 3, .. are reset in the same step,
    where a time limit loses the final observation.
    """
    first = np.zeros((steps + 1, batch), bool)
    last = np.zeros((steps + 1, batch), bool)
    discount = np.ones((steps, batch))
    for b in range(batch):
        for t in range(steps):
            if last[t, b]:
                first[t + 1, b] = True
            elif rng.random() < ends:
                discount[t, b] = float(rng.random() < 0.5)
                (last if b % 2 == 0 else first)[t + 1, b] = True
    return first, last, discount


def is_experience(first, last, discount, t, b):
    """Whether the transition t -> t + 1 happened within one episode and is whole."""
    ignored = last[t, b]
    final_observation_lost = first[t + 1, b] and discount[t, b] != 0
    return not ignored and not final_observation_lost
