"""Composed actions for tests: nests of choices and numbers, with masks or without."""

import numpy as np
from dm_env import specs as dm_specs

from callboard.specs import EnvironmentSpec, MultiDiscreteArray

SEEN = dm_specs.Array((3,), np.float32)
BOX = dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [3.0, np.inf])
ACTIONS = {
    "multi-discrete": MultiDiscreteArray([2, 4, 3]),
    "equal sizes": MultiDiscreteArray([[2, 2], [2, 2]]),
    "tuple of boxes": (BOX, dm_specs.BoundedArray((), np.float32, -2.0, 2.0)),
    "nest": {"move": BOX, "arm": (dm_specs.DiscreteArray(3, np.int64), MultiDiscreteArray([[2, 4]]))},
}


def spec_of(action, masked=False):
    if not masked:
        return EnvironmentSpec(SEEN, action)
    from callboard.action_masks import choice_sizes

    mask = dm_specs.BoundedArray((int(choice_sizes(action).sum()),), np.int8, 0, 1)
    return EnvironmentSpec({"action_mask": mask, "observation": SEEN}, action)


def random_mask(rng, sizes, *leading):
    """Masks `[..., S]` that leave at least one value of each choice."""
    parts = []
    for size in sizes:
        part = rng.integers(2, size=(*leading, size))
        np.put_along_axis(part, rng.integers(size, size=(*leading, 1)), 1, axis=-1)
        parts.append(part)
    return np.concatenate(parts, axis=-1).astype(np.int8)
