"""Comparison of an environment's spaces with those that a run was trained with."""

import numpy as np
import tree
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..run_directory.layout import RunDirectory
from .saved_policies import saved_spec


def check_same_spaces(directory: RunDirectory, spec: EnvironmentSpec, problem: str, fix: str) -> None:
    """Refuses an environment on which the policy of a run cannot act; bounds may differ.

    Args:
      directory: directory of the run, or of one of its policies; any spec is accepted if it has none.
      spec: spec of the environment.
      problem: beginning of the message, such as `a resumed run cannot change its environment`.
      fix: end of the message.

    Raises:
      CallboardError: observations or actions have another structure, shape, dtype or number of choices; or the saved
        spec is damaged.
    """
    saved = saved_spec(directory)
    if saved is None:
        return
    before, now = ((_form(one.observation), _form(one.action)) for one in (saved, spec))
    if before != now:
        raise CallboardError(
            f"{problem}: it was trained with observations {before[0]} and actions {before[1]}, and these are "
            f"{now[0]} and {now[1]}; {fix}"
        )


def _form(spec: Nest) -> str:
    """Describes all of a nest of specs but its bounds, such as `{camera: uint8(64, 64, 3), speed: float32(2,)}`."""
    parts = [(".".join(map(str, path)), _leaf_form(leaf)) for path, leaf in tree.flatten_with_path(spec)]
    if [name for name, _ in parts] == [""]:
        return parts[0][1]
    return f"{{{', '.join(f'{name}: {form}' for name, form in parts)}}}"


def _leaf_form(leaf: specs.Array) -> str:
    if isinstance(leaf, specs.DiscreteArray):
        return f"{leaf.num_values} choices"
    numbers = getattr(leaf, "num_values", None)
    if numbers is not None:
        return f"choices {np.asarray(numbers).tolist()}"
    return f"{np.dtype(leaf.dtype).name}{tuple(leaf.shape)}"
