"""Spaces of Gymnasium from the plain data that a worker sends."""

import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from ...errors import CallboardError
from .exchange import Space


def described_space(space: Space, role: str = "observation") -> spaces.Space:
    """Returns the space that `exchange.space_description` has described.

    Raises:
      CallboardError: it is of a kind whose values have no fixed size.
    """
    kind = space["kind"]
    if kind == "Dict":
        return spaces.Dict({key: described_space(part, role) for key, part in space["parts"]})
    if kind == "Tuple":
        return spaces.Tuple([described_space(part, role) for part in space["parts"]])
    if "shape" not in space:
        raise CallboardError(
            f"the {role} space {kind} is not supported: Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are; "
            "turn it into numbers with gymnasium.wrappers.TransformObservation"
        )
    dtype, shape = np.dtype(space["dtype"]), tuple(space["shape"])
    if kind == "Box":
        low, high = (np.broadcast_to(np.asarray(space[end]), shape).astype(dtype) for end in ("low", "high"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return spaces.Box(low, high, shape, dtype.type)
    made: Any
    if kind == "Discrete":
        made = spaces.Discrete(space["n"], start=space["start"])
    elif kind == "MultiDiscrete":
        made = spaces.MultiDiscrete(np.array(space["n"]))
        made.start = np.broadcast_to(np.array(space["start"], made.nvec.dtype), shape)
    else:
        made = spaces.MultiBinary(shape)
    made.dtype = dtype
    return made
