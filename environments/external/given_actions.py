"""Actions that do not come from a policy, but from a caller, in the environment's own form."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError, type_text
from ...specs import MultiDiscreteArray
from ..batches.encoding import Leaf
from ..batches.given_observations import read_numbers, refuse_other_parts
from ..batches.observation_values import place_text


def read_action(encodings: Nest, given: Any, path: tuple[str, ...] = ()) -> Nest:
    """Checks and encodes the action of one environment.

    Args:
      encodings: the encoding of the environment's actions.
      given: the action as the environment takes it: a nest of arrays, or of Python numbers and lists of them.
      path: names of the parts that contain it, for messages.

    Returns:
      A nest of the agent's arrays `[...]`.

    Raises:
      CallboardError: a part is missing or unknown, has another shape than the environment's, or values outside of its
        space.
    """
    if isinstance(encodings, Leaf):
        return _read_leaf(encodings, given, path)
    kind: Any = Mapping if isinstance(encodings, dict) else Sequence
    if not isinstance(given, kind) or isinstance(given, str):
        what = "a mapping" if isinstance(encodings, dict) else "a list"
        raise CallboardError(f"the action{place_text(path)} is {type_text(given)}, not {what} of its parts")
    parts = encodings if isinstance(encodings, dict) else dict(enumerate(encodings))
    try:
        read = {key: read_action(part, given[key], (*path, str(key))) for key, part in parts.items()}
    except (KeyError, IndexError) as error:
        raise CallboardError(f"the action{place_text(path)} has no part {error.args[0]!r}") from error
    refuse_other_parts(given, parts, f"the action{place_text(path)}")
    return read if isinstance(encodings, dict) else tuple(read.values())


def _read_leaf(leaf: Leaf, given: Any, path: tuple[str, ...]) -> np.ndarray:
    spec, place = leaf.spec, place_text(path)
    array = read_numbers(given, f"the action{place}")
    if array.shape != tuple(spec.shape):
        raise CallboardError(
            f"the action{place} is {array.dtype.name}{array.shape}, but the environment takes "
            f"{leaf.dtype.name}{tuple(spec.shape)}"
        )
    if isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
        choices = array - (0 if leaf.start is None else leaf.start)
        if not np.all((choices >= 0) & (choices < spec.num_values) & (choices == np.floor(choices))):
            raise CallboardError(f"the action{place} is {array.tolist()}, which is not among its choices")
        return choices.astype(spec.dtype)
    values = array.astype(spec.dtype)
    if isinstance(spec, specs.BoundedArray):
        # What the environment counts as within its bounds may be outside by the rounding to float32.
        slack = np.spacing(np.abs(values))
        if not np.all((values >= spec.minimum - slack) & (values <= spec.maximum + slack)):
            raise CallboardError(f"the action{place} is {array.tolist()}, which is outside of its bounds")
        values = np.clip(values, spec.minimum, spec.maximum)
    if not np.all(np.isfinite(values)):
        raise CallboardError(f"the action{place} is NaN or infinite")
    return values
