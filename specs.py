"""Environment specs (dm_env) and the TensorFlow specs derived from them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tree
from dm_env import specs

from .data import Nest
from .errors import CallboardError

AGENT_INDEX = "agent_index"
"""Part of an agent's observation: which agent of the environment it is of, one-hot."""
PRESENT = "present"
"""Part of a team's observation: which of its members are in the episode, float32 `[members]`."""
STATE = "state"
"""Part of an observation that only learners see: the state of the whole environment, a vector."""

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Parts of an observation, if it has goals: the one that is achieved now, and the one to achieve."""


class EnvironmentSpec(NamedTuple):
    """Observation and action specs of one environment, without the batch axis."""

    observation: Nest
    """Nest of `dm_env.specs.Array`, with bounds where the environment has them."""
    action: Any
    """`dm_env.specs.DiscreteArray`, `dm_env.specs.BoundedArray`, or a nest of them."""
    encoding: Any = None
    """The `environments.encoding.EnvironmentEncoding`, if the environment's own arrays differ from these."""


class MultiDiscreteArray(specs.BoundedArray):
    """An array of discrete choices, each numbered from 0, as `dm_env.specs.DiscreteArray` is for a single choice."""

    __slots__ = ("_num_values",)

    def __init__(self, num_values: Any, dtype: Any = np.int32, name: str | None = None) -> None:
        """Creates the spec from `num_values`, the number of values of each choice: ints of at least 1, any shape."""
        self._num_values = np.array(num_values, np.int64)
        self._num_values.setflags(write=False)
        super().__init__(self._num_values.shape, dtype, 0, self._num_values - 1, name)

    @property
    def num_values(self) -> np.ndarray:
        """int64 array of the spec's shape: the number of values of each choice."""
        return self._num_values

    def __reduce__(self) -> Any:
        return MultiDiscreteArray, (self._num_values, self.dtype, self.name)


def is_image(spec: specs.Array) -> bool:
    """Returns whether an observation array is an image, that is, has height, width and channels."""
    return len(spec.shape) == 3 and not isinstance(spec, MultiDiscreteArray)


def has_channels_first(shape: tuple[int, ...]) -> bool | None:
    """Guesses whether an array of rank 3 is channels x height x width rather than height x width x channels.

    Most images are square and have far fewer channels than rows or columns, so (4, 84, 84) and (3, 210, 160) have their
    channels first.  Returns None where both readings are plausible, as for (16, 8, 8) or (5, 9, 20).
    """
    first, second, third = shape
    if third <= min(first, second, 4) or first == second:
        return False
    if first < min(second, third):
        return True if second == third or 4 * first <= min(second, third) else None
    return None if second == third else False


def named_parts(observation: Nest) -> dict[str, Nest]:
    """Returns the parts of an observation, or of its spec; one that is no dictionary of names is `observation`."""
    has_names = isinstance(observation, Mapping) and all(isinstance(key, str) for key in observation)
    return dict(observation) if has_names else {"observation": observation}


def without_part(spec: EnvironmentSpec, key: str) -> EnvironmentSpec:
    """Returns the spec of an environment whose observations, dictionaries, lack the part `key`."""
    observation = {name: part for name, part in spec.observation.items() if name != key}
    if spec.encoding is None:
        return spec._replace(observation=observation)
    encoded = {name: part for name, part in spec.encoding.observation.items() if name != key}
    return spec._replace(observation=observation, encoding=spec.encoding._replace(observation=encoded))


def tensor_spec(spec: Nest, leading: tuple[int | None, ...] = ()) -> Nest:
    """Converts a nest of dm_env specs to `tf.TensorSpec`, with leading axes `leading`."""
    import tensorflow as tf  # Imported here so that checking a spec does not import TensorFlow.

    return tree.map_structure(lambda leaf: tf.TensorSpec((*leading, *leaf.shape), leaf.dtype), spec)


def add_leading(spec: Nest, *leading: int | None) -> Nest:
    """Adds leading axes `leading` to a nest of `tf.TensorSpec`."""
    import tensorflow as tf

    return tree.map_structure(lambda leaf: tf.TensorSpec((*leading, *leaf.shape), leaf.dtype), spec)


def zeros(spec: Nest, *leading: int) -> Nest:
    """Returns NumPy zeros for a nest of dm_env specs or `tf.TensorSpec`, with leading axes `leading`."""
    return tree.map_structure(lambda leaf: np.zeros((*leading, *leaf.shape), _numpy_dtype(leaf.dtype)), spec)


def describe(spec: Nest) -> str:
    """Describes a nest of specs briefly, for messages, such as `float32(4,)` or `2 discrete actions`."""

    def leaf_text(leaf: Any) -> str:
        if isinstance(leaf, specs.DiscreteArray):
            return f"{leaf.num_values} discrete actions"
        return f"{np.dtype(leaf.dtype).name}{tuple(leaf.shape)}"

    return ", ".join(leaf_text(leaf) for leaf in tree.flatten(spec))


def check_same_form(first: EnvironmentSpec, other: EnvironmentSpec, what: str) -> None:
    """Checks that two environments have the same parts, shapes and numbers of choices; their bounds may differ.

    Args:
      first: the spec of one.
      other: the spec of the other one.
      what: how an error begins, such as `environments 0 and 1`.

    Raises:
      CallboardError: they differ.
    """

    def form(nest: Nest) -> Nest:
        return tree.map_structure(
            lambda leaf: f"{tuple(leaf.shape)} {np.asarray(getattr(leaf, 'num_values', ())).tolist()}", nest
        )

    if (form(first.observation), form(first.action)) != (form(other.observation), form(other.action)):
        texts = [f"{describe(one.observation)} with {describe(one.action)}" for one in (first, other)]
        how = (
            f"{texts[0]}, and {texts[1]}" if texts[0] != texts[1] else "the numbers of choices or names of parts differ"
        )
        raise CallboardError(f"{what} have different spaces: {how}; make all with the same")


def _numpy_dtype(dtype: Any) -> Any:
    return getattr(dtype, "as_numpy_dtype", dtype)
