"""The devices that learners train on, and the distribution strategy over them.

TensorFlow is imported only by the functions that need it, because settings are read and checked before TensorFlow is
loaded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...caller_words import argument
from ...errors import CallboardError

if TYPE_CHECKING:
    import tensorflow as tf


def device_names(setting: int | str) -> list[str]:
    """Returns the devices of one learner, for example `["GPU:0", "GPU:1"]`.

    Args:
      setting: a number of GPUs (1 means the CPU on a machine without a GPU), `all` GPUs, or comma-separated device
        names.  Any number of CPU devices may be named.

    Raises:
      CallboardError: the machine has fewer devices.
    """
    import tensorflow as tf

    gpus = len(tf.config.list_physical_devices("GPU"))
    if setting == "all":
        return _gpus(gpus) or ["CPU:0"]
    if re.fullmatch(r"[0-9]+", str(setting)):
        count = int(setting)
        if count == 1 and not gpus:
            return ["CPU:0"]
        if not 1 <= count <= gpus:
            raise CallboardError(
                f"learner_devices is {count}, and this machine has {gpus} GPU(s): "
                "set a number that there is, or name devices of the processor, such as CPU:0,CPU:1"
            )
        return _gpus(count)
    names = _named(setting)
    for name in names:
        if name.startswith("GPU") and name not in _gpus(gpus):
            raise CallboardError(f"learner_devices names {name}, and this machine has {gpus} GPU(s)")
    return names


def device_count(setting: int | str) -> int:
    """Returns the number of a learner's devices; only `all` depends on the machine that this runs on.

    Raises:
      CallboardError: the setting is not one that `device_names` accepts.
    """
    if setting == "all":
        return len(device_names(setting))
    count = int(setting) if re.fullmatch(r"[0-9]+", str(setting)) else len(_named(setting))
    if count < 1:
        raise CallboardError(f"learner_devices must be at least 1, not {count}")
    return count


def prepare_devices(names: Sequence[str]) -> None:
    """Initializes those devices in this process; must come before any other TensorFlow operation in it.

    Raises:
      CallboardError: TensorFlow is already initialized, with fewer devices.
    """
    import tensorflow as tf

    try:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        cpus = max(int(name[4:]) + 1 if name.startswith("CPU") else 1 for name in names)
        processor = tf.config.list_physical_devices("CPU")[0]
        if cpus > len(tf.config.get_logical_device_configuration(processor) or [None]):
            tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * cpus)
    except RuntimeError:
        known = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
        missing = [name for name in names if name not in known]
        if missing:
            raise CallboardError(
                f"TensorFlow was used in this process before it had the learner device {missing[0]}: "
                f"start the run in a new process, or use {argument('launcher', 'processes')}"
            ) from None


def hide_gpus() -> None:
    """Keeps TensorFlow in this process from allocating GPU memory; must come before any TensorFlow operation."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")


def make_strategy(names: Sequence[str], workers: Sequence[str] = (), rank: int = 0) -> tf.distribute.Strategy:
    """Makes a learner's strategy over its devices; must come before any other TensorFlow operation in the process.

    Args:
      names: the learner's devices, see `device_names`.
      workers: `host:port` of every learner, reserved for the collectives between them, if there are several.
      rank: this learner's index among them.
    """
    import tensorflow as tf

    prepare_devices(names)
    if len(names) > 1 or len(workers) > 1:
        # For a function on several devices, this pass of TensorFlow 2.12 drops control edges from reads of variables to
        # their updates: at times SAC's policy learned from a pair of critics of which one was already updated.
        tf.config.optimizer.set_experimental_options({"dependency_optimization": False})
    if len(workers) > 1:
        cluster = {"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": rank}}
        os.environ["TF_CONFIG"] = json.dumps(cluster)
        ring = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    if len(names) > 1:
        return tf.distribute.MirroredStrategy(list(names))
    (name,) = names
    first = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
    return tf.distribute.get_strategy() if name == first else tf.distribute.OneDeviceStrategy(f"/{name.lower()}")


def share_first_learners_state(
    strategy: tf.distribute.Strategy, rank: int, modules: Mapping[str, tf.Module | tf.Variable]
) -> None:
    """Copies the first learner's whole checkpointed state to every learner; all learners must call it.

    Args:
      strategy: strategy over the learners.
      rank: index of this learner.
      modules: modules and variables, built alike by all learners.
    """
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(**modules)  # The view alone would not keep it alive.
    parts = tf.train.TrackableView(checkpoint).descendants()
    variables = [part for part in parts if isinstance(part, tf.Variable)]

    def own_values() -> list[tf.Tensor]:
        # Booleans cannot be summed.
        values = [tf.cast(one, tf.int32) if one.dtype.is_bool else tf.identity(one) for one in variables]
        if rank > 0:
            return [tf.zeros(value.shape, value.dtype) for value in values]
        # Only one replica of the first learner contributes.
        is_first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
        return [tf.where(is_first, value, tf.zeros(value.shape, value.dtype)) for value in values]

    @tf.function(autograph=False)
    def sums() -> list[tf.Tensor]:
        return [strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for value in strategy.run(own_values)]

    for variable, value in zip(variables, sums(), strict=True):
        variable.assign(tf.cast(value, variable.dtype))


def _named(setting: int | str) -> list[str]:
    """Parses devices given by name."""
    names = [name.strip().upper() for name in str(setting).split(",")]
    if not all(re.fullmatch(r"(CPU|GPU):[0-9]+", name) for name in names):
        raise CallboardError(
            f"learner_devices must be a number, all, or names such as CPU:0,CPU:1; {setting!r} is none of them"
        )
    if len(set(names)) < len(names) or len({name[:3] for name in names}) > 1:
        raise CallboardError(f"learner_devices must name different devices of one kind, not {setting}")
    return names


def _gpus(count: int) -> list[str]:
    return [f"GPU:{number}" for number in range(count)]
