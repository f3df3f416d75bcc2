"""Encodings of Gymnasium spaces (see `encoding`)."""

import numpy as np
from gymnasium import spaces

from ...data import Nest
from ...errors import CallboardError
from . import encoding
from .observation_values import place_text
from .space_sizes import check_array, check_bounds, check_depth


def observation_encoding(space: spaces.Space) -> Nest:
    """Returns the encoding of an observation space; raises `CallboardError` if the space is not supported."""
    return _encoding(space, "observation", ())


def action_encoding(space: spaces.Space) -> Nest:
    """Returns the encoding of an action space; raises `CallboardError` if the space is not supported."""
    return _encoding(space, "action", ())


def _encoding(space: spaces.Space, role: str, path: tuple[str, ...]) -> Nest:
    check_depth(role, path)
    if isinstance(space, spaces.Discrete):
        check_array((), role, path, space.n)
        return encoding.choice(int(space.n), space.dtype, int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        check_array(space.shape, role, path, space.nvec)
        return encoding.choices(space.nvec, space.dtype, space.start)
    if isinstance(space, spaces.MultiBinary):
        check_array(space.shape, role, path)
        if role == "observation":
            return encoding.numbers(space.shape, space.dtype, 0, 1)
        return encoding.choices(np.full(space.shape, 2), space.dtype)
    if isinstance(space, spaces.Box):
        check_array(space.shape, role, path)
        check_bounds(space.low, space.high, role, path)
        if role == "action" and np.issubdtype(space.dtype, np.integer):
            return encoding.bounded_integers(space.shape, space.dtype, space.low, space.high)
        make_leaf = encoding.controls if role == "action" else encoding.numbers
        return make_leaf(space.shape, space.dtype, space.low, space.high)
    place = place_text(path)
    if isinstance(space, spaces.Dict):
        encoding.check_keys(space.spaces, f"the {role} space Dict{place}")
        return {key: _encoding(part, role, (*path, str(key))) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_encoding(part, role, (*path, str(index))) for index, part in enumerate(space.spaces))
    way_out = ""
    if role == "observation" and isinstance(space, spaces.Text | spaces.Sequence):
        size = "sequence_length" if isinstance(space, spaces.Sequence) else "text_length"
        way_out = f"; give it a fixed size with env_wrappers [{{name: FixedSizeObservations, {size}: 16}}]"
    elif role == "observation":
        way_out = "; turn it into numbers with gymnasium.wrappers.TransformObservation"
    if role == "observation" and path:
        way_out += ", or leave it out with gymnasium.wrappers.FilterObservation"
    raise CallboardError(
        f"the {role} space {type(space).__name__}{place} is not supported: "
        f"Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are{way_out}"
    )
