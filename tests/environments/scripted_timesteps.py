"""The timesteps of two scripted environments, worked out by hand for every way in which an episode can end."""

import numpy as np

from callboard import environments

# Two environments, side by side.  Environment 0 terminates in its 2nd step, is cut off after 3 steps, terminates again.
# Environment 1 is cut off after every 3 steps.
ACTIONS = np.array([[0, 2, 1, 0, 1, 0, 0, 2], [1, 1, 1, 1, 1, 1, 1, 1]], np.int32).T
# observation, reward, discount, first, last: worked out by hand.
FINAL_SHOWN = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([0, 2], 3, 0, False, True),
        ([1, 0], 0, 1, True, False),
        ([1, 1], 1, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([1, 3], 1, 1, False, True),
        ([2, 0], 0, 1, True, False),
        ([2, 1], 3, 0, False, True),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([0, 3], 2, 1, False, True),
        ([1, 0], 0, 1, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([1, 3], 2, 1, False, True),
        ([2, 0], 0, 1, True, False),
    ],
)
FINAL_LOST = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([1, 0], 3, 0, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 1, 1, False, False),
        ([2, 0], 2, 1, True, False),
        ([2, 1], 1, 1, False, False),
        ([2, 2], 1, 1, False, False),
        ([3, 0], 3, 0, True, False),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([1, 0], 2, 1, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([2, 0], 2, 1, True, False),
        ([2, 1], 2, 1, False, False),
        ([2, 2], 2, 1, False, False),
    ],
)
# Terminations lose the final observation, time limits do not.
TRUNCATED_SHOWN = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([1, 0], 3, 0, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 1, 1, False, False),
        ([1, 3], 2, 1, False, True),
        ([2, 0], 0, 1, True, False),
        ([2, 1], 1, 1, False, False),
        ([3, 0], 3, 0, True, False),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([0, 3], 2, 1, False, True),
        ([1, 0], 0, 1, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 2, 1, False, False),
        ([1, 3], 2, 1, False, True),
        ([2, 0], 0, 1, True, False),
    ],
)
# The same, where an episode that has begun is left out after each time limit.
TRUNCATED_SKIPS = (
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 1, 1, False, False),
        ([1, 0], 3, 0, True, False),
        ([1, 1], 2, 1, False, False),
        ([1, 2], 1, 1, False, False),
        ([1, 3], 2, 1, False, True),
        ([3, 0], 0, 1, True, False),
        ([3, 1], 1, 1, False, False),
        ([4, 0], 3, 0, True, False),
    ],
    [
        ([0, 0], 0, 1, True, False),
        ([0, 1], 2, 1, False, False),
        ([0, 2], 2, 1, False, False),
        ([0, 3], 2, 1, False, True),
        ([2, 0], 0, 1, True, False),
        ([2, 1], 2, 1, False, False),
        ([2, 2], 2, 1, False, False),
        ([2, 3], 2, 1, False, True),
        ([4, 0], 0, 1, True, False),
    ],
)


def make(factory, batch_size=2):
    return environments.make(f"scripted_environments:{factory}", batch_size, range(batch_size))


def rows(timesteps):
    """Timesteps as in the tables above, one list to each environment."""
    return tuple(
        [
            (
                list(timestep.observation[slot]),
                timestep.reward[slot],
                timestep.discount[slot],
                timestep.first[slot],
                timestep.last[slot],
            )
            for timestep in timesteps
        ]
        for slot in range(len(timesteps[0].reward))
    )
