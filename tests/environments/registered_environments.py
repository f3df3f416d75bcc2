"""Environments that tests register with Gymnasium, with vector forms that are not equal to the single form."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

LIMIT = 3
"""Steps after which an episode of the ids is truncated."""


class Endless(gymnasium.Env):
    """Episodes without an end."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, scale=1.0):
        self._scale = scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self._scale, False, False, {}


def without_limit(num_envs):
    """A vector form that takes no options."""
    return SyncVectorEnv([Endless] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def any_options(num_envs, **options):
    """A vector form that takes any options, and leaves the limit unused."""
    options.pop("max_episode_steps", None)
    return SyncVectorEnv([lambda: Endless(**options)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class Shrinks(Endless):
    """Observations of another shape after the first."""

    def step(self, action):
        return np.zeros(1, np.float32), *super().step(action)[1:]


gymnasium.register("CallboardTest/Shrinks-v0", f"{__name__}:Shrinks")
for _name, _vector, _options in (
    ("WithoutLimit", "without_limit", {}),
    ("AnyOptions", "any_options", {}),
    ("WithoutOption", "without_limit", {"scale": 2.0}),
):
    gymnasium.register(
        f"CallboardTest/{_name}-v0",
        f"{__name__}:Endless",
        vector_entry_point=f"{__name__}:{_vector}",
        max_episode_steps=LIMIT if _name != "WithoutOption" else None,
        kwargs=_options,
    )
