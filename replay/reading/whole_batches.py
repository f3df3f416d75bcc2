"""Items that hold the windows or sequences of an actor's whole batch, and sampling from them in two levels.

Reverb's costs of writing and of sampling are per item.  An item of a whole batch holds what starts at one timestep in
all B environments, each with a weight: priority^alpha, 1 if sampling is uniform, and 0 for what may not be sampled.
The item's priority in Reverb is the sum v of its weights.

With V = sum of v over all items, an item is sampled with probability v / V, and k of its windows are then chosen such
that each choice is a given one of weight w with probability w / v.  So any choice is a given window of replay with
probability (v / V) (w / v) = w / V, as if all were sampled by themselves.  Only their joint distribution differs: k of
a batch are of the same timestep.

Weights that change are looked up in the shard's `servers.window_weights`.

With k further goals (`writing.hindsight`) each of these windows is 1 + k, with weights of their own; so is the window
in an item of a single environment.
"""

import time

import numpy as np
import tensorflow as tf
import tree

from ...data import ItemInfo
from ...errors import CallboardError
from ...runtime.deadlines import Clock, Deadline
from ..servers.handle import CALL_SECONDS, ReplayHandle
from ..writing.batch_writers import ReplayItem
from ..writing.item_format import ItemFormat
from .sampling import SampledItems

_LARGEST = 8192
"""Bytes of a window or sequence up to which Reverb's cost for an item is more than that for its bytes, as measured."""
_ITEMS_PER_BATCH = 8
"""Least number of timesteps of which the windows of a batch are, unless the setting says otherwise."""
_AWAY_SECONDS, _AWAY_CALL_SECONDS = 5.0, 0.5


def chosen_number(item_bytes: int, batch: int, envs: int) -> int:
    """Returns how many windows or sequences of an actor's batch to sample together; 1 for items of single ones.

    Args:
      item_bytes: bytes of one window or sequence.
      batch: windows or sequences in a replica's share of a batch.
      envs: environments of an actor.
    """
    if item_bytes > _LARGEST:
        return 1
    fitting = (number for number in range(2, envs + 1) if batch % number == 0 and batch // number >= _ITEMS_PER_BATCH)
    return max(fitting, default=1)


def chosen_of(items: SampledItems, item_format: ItemFormat, look_up: "WeightLookUp | None" = None) -> SampledItems:
    """Chooses from items of whole batches at random what is learned from.

    Args:
      items: N items, with the number of all windows as `info.items`.
      item_format: format of the items.
      look_up: looks up the weights of prioritized windows; None where those that were written do not change.

    Returns:
      N k items of single environments, where k is `item_format.together`, those of an item side by side; with goals, if
      there are further ones.
    """
    weights, together = item_format.weights(items.item), item_format.together
    goals = 1 + item_format.goals
    if look_up is not None:
        weights = look_up(items.info, weights)
    # Of an item whose weights were all set to 0 after it was sampled, any window is as good.
    weights = tf.where(tf.reduce_sum(weights, axis=1, keepdims=True) > 0, weights, tf.ones_like(weights))
    chosen = chosen_windows(weights, together)
    if together > 1:
        envs = chosen // goals
        rows = tf.transpose(tf.gather(items.item.rows, envs, axis=2, batch_dims=1), (0, 2, 1, 3))
        state = tf.gather(items.item.state, envs, axis=1, batch_dims=1) if item_format.state else ()
    else:
        rows, state = tree.map_structure(lambda leaf: leaf[:, tf.newaxis], tuple(items.item))
    weights = tf.cast(weights, tf.float64)
    share = tf.gather(weights, chosen, batch_dims=1) / tf.reduce_sum(weights, axis=1, keepdims=True)
    info = tree.map_structure(lambda leaf: tf.repeat(leaf, together), items.info)
    info = info._replace(probability=info.probability * tf.reshape(share, [-1]))
    return SampledItems(
        item=tree.map_structure(lambda leaf: tf.reshape(leaf, (-1, *leaf.shape[2:])), ReplayItem(rows, state)),
        info=info if look_up is None else info._replace(env=tf.reshape(chosen, [-1])),
        mass=tf.repeat(items.mass, together),
        goal=tf.reshape(chosen % goals, [-1]) if item_format.goals else (),
    )


def chosen_windows(weights: tf.Tensor, number: int) -> tf.Tensor:
    """Chooses windows at random for each item, by systematic sampling.

    The weights, in random order, are laid side by side around a circle, and the choices are where points at equal
    distances fall, of which the first is anywhere with the same probability.

    Args:
      weights: float `[N, W]`; at least one of each item is not 0.
      number: how many are chosen of each item (k).

    Returns:
      int32 `[N, k]`; each is a given window in proportion to its weight w.  With v the sum of the item's weights, a
      window is chosen floor(k w / v) or ceil(k w / v) times.
    """
    order = tf.argsort(tf.random.uniform(tf.shape(weights)), axis=1)
    ends = tf.cumsum(tf.cast(tf.gather(weights, order, batch_dims=1), tf.float64), axis=1)
    total = ends[:, -1:]
    turns = tf.random.uniform((tf.shape(weights)[0], 1), dtype=tf.float64) + np.arange(number) / number
    # Rounded up to the total, a point would be of no window.
    points = tf.minimum((turns - tf.floor(turns)) * total, tf.math.nextafter(total, tf.zeros_like(total)))
    return tf.gather(order, tf.searchsorted(ends, points, side="right"), batch_dims=1)


class AwayShards:
    """The shards for which sampling has waited in vain in the last 5 seconds, so that it does not wait for them twice.

    Args:
      clock: the clock; another one in tests.
    """

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._until: dict[int, Deadline] = {}

    def add(self, shard: int) -> None:
        """Adds a shard for the next 5 seconds."""
        self._until[shard] = Deadline(_AWAY_SECONDS, self._clock)

    def discard(self, shard: int) -> None:
        """Removes a shard that has answered."""
        self._until.pop(shard, None)

    def __contains__(self, shard: int) -> bool:
        until = self._until.get(shard)
        return until is not None and not until.has_passed


class WeightLookUp:
    """Looks the weights of windows up in their shards' `WindowWeights`, in functions of a dataset.

    The windows of a shard that does not answer are chosen by the weights that they were written with.

    Args:
      replay: handle of the replay.
      away: shards whose answer is hardly waited for.  One that does not answer is added.

    Raises:
      CallboardError: the handle does not reach them.
    """

    def __init__(self, replay: ReplayHandle, away: AwayShards):
        if replay.windows is None:
            raise CallboardError(
                "this handle reaches no priorities of windows in items of whole batches: make it from replay nodes, or "
                "set agent.replay.sampled_together to 1"
            )
        self._windows = replay.windows
        self._away = away

    def __call__(self, info: ItemInfo, weights: tf.Tensor) -> tf.Tensor:
        """Returns the weights of the windows of items, float32 `[N, W]`.

        Args:
          info: how the items were sampled.
          weights: the weights that they were written with, float32 `[N, W]`.
        """
        found = tf.numpy_function(self._current, (info.key, info.shard, weights), tf.float32)
        return tf.ensure_shape(found, weights.shape)

    def _current(self, keys: np.ndarray, shards: np.ndarray, weights: np.ndarray) -> np.ndarray:
        weights = weights.copy()
        for shard in np.unique(shards).tolist():
            of_shard = shards == shard
            client = self._windows(shard, _AWAY_CALL_SECONDS if shard in self._away else CALL_SECONDS)
            try:
                found = client.window_weights(keys[of_shard].tobytes(), weights[of_shard].tobytes())
            except Exception:  # Courier raises its own errors; all mean that the shard is away.
                self._away.add(shard)
                continue
            weights[of_shard] = found
        return weights
