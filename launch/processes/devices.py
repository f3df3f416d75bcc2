"""The devices that learners train on, and the distribution strategy over them.

TensorFlow is imported only by the functions that need it, because settings are read and checked before TensorFlow is
loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import CallboardError
from ...messages.caller_words import argument
from .cuda_libraries import gpus_are_hidden, load_libraries, why_unseen
from .gpu_driver import find_gpus

if TYPE_CHECKING:
    import tensorflow as tf

_NUMBER = "[0-9]{1,3}"
_NAMED = re.compile(f"(CPU|GPU):({_NUMBER})(?:/([2-8]))?")
_DIVIDED = 0.85
"""The part of a GPU's memory that logical devices divide among them; the rest is for CUDA and its libraries."""
_UNKNOWN_BYTES = 8 << 30


class GpuUse(NamedTuple):
    """How a process uses the GPUs that it sees."""

    memory: float | None = None
    """GB of each GPU that the process may use; None for as much as it needs."""
    tf32: bool = False
    """Whether products and convolutions of float32 are computed with the 10 bits of mantissa of TF32."""


class LearnerDevices(NamedTuple):
    """The devices of one learner, as `parse_devices` reads them."""

    kind: str = ""
    """`CPU` or `GPU` where devices are named; empty for a number of GPUs."""
    indices: tuple[int, ...] = ()
    """The devices that are named."""
    number: int | None = None
    """The number of GPUs, of which 1 is the CPU on a machine without any; None for all."""
    parts: int = 1
    """The number of logical devices of each GPU."""

    @property
    def are_all(self) -> bool:
        """Whether they are all GPUs of a machine."""
        return not self.kind and self.number is None

    def device_count(self) -> int:
        """Returns their number; only that of all GPUs depends on the machine that this runs on."""
        if self.are_all:
            return max(1, len(find_gpus().gpus))
        return self.number or len(self.indices) * self.parts

    def gpu_indices(self, gpus: int) -> list[int]:
        """Returns which of a machine's GPUs the learner uses; empty if it uses the CPU.

        Args:
          gpus: number of GPUs that there are.

        Raises:
          CallboardError: the machine has fewer.
        """
        if self.kind == "CPU":
            return []
        number = gpus if self.number is None else self.number
        if number == 1 and not gpus and not self.kind:
            return []
        found = list(self.indices) if self.kind else list(range(number))
        missing = [index for index in found if index >= gpus]
        if missing:
            what = f"names GPU:{missing[0]}" if self.kind else f"is {number}"
            raise CallboardError(
                f"learner_devices {what}, and this machine has {gpus} GPU(s): "
                "set a number that there is, or name devices of the processor, such as CPU:0,CPU:1"
            )
        return found


def parse_devices(setting: int | str) -> LearnerDevices:
    """Parses `learner_devices`.

    Args:
      setting: a number of GPUs (1 means the CPU on a machine without a GPU), `all` GPUs, or comma-separated device
        names.  Any number of CPU devices may be named; `GPU:0/2` is two logical devices that share one GPU.

    Raises:
      CallboardError: the setting is none of these.
    """
    text = str(setting).strip().upper()
    if text == "ALL":
        return LearnerDevices()
    if re.fullmatch(_NUMBER, text):
        if not int(text):
            raise CallboardError("learner_devices must be at least 1, not 0")
        return LearnerDevices(number=int(text))
    found = [_NAMED.fullmatch(name.strip()) for name in text.split(",")]
    names = [name.groups() for name in found if name is not None]
    if len(names) < len(found):
        raise CallboardError(
            "learner_devices must be a number of up to 3 digits, all, or names such as CPU:0,CPU:1 or GPU:0/2, not "
            f"{setting!r}"
        )
    kind, _, parts = names[0]
    if any(one for _, _, one in names) and (kind == "CPU" or len(names) > 1):
        raise CallboardError(f"learner_devices must name one GPU that is divided, such as GPU:0/2, not {setting}")
    indices = tuple(int(index) for _, index, _ in names)
    if len(set(indices)) < len(indices) or any(other != kind for other, _, _ in names):
        raise CallboardError(f"learner_devices must name different devices of one kind, not {setting}")
    return LearnerDevices(kind, indices, parts=int(parts or 1))


def take_devices(setting: int | str, use: GpuUse | None = None) -> list[str]:
    """Makes a learner's devices the ones that this process has, and returns their names in it.

    Must come before any other TensorFlow operation in the process.  A process that sees only some GPUs of the machine,
    because a launcher has chosen them, takes them for those that the setting names.

    Args:
      setting: as for `parse_devices`.
      use: how the process uses GPUs; None for the defaults.

    Raises:
      CallboardError: the process has fewer devices, or TensorFlow is already initialized without them.
    """
    import tensorflow as tf

    load_libraries()
    seen = tf.config.list_physical_devices("GPU")
    devices = parse_devices(setting)
    if devices.kind == "GPU" and len(devices.indices) == len(seen):
        indices = list(range(len(seen)))
    else:
        indices = devices.gpu_indices(len(seen))
    names = [f"GPU:{number}" for number in range(len(indices) * devices.parts)]
    names = names or [f"CPU:{index}" for index in devices.indices or (0,)]
    with contextlib.suppress(RuntimeError):  # TensorFlow was used already; what is missing then is found below.
        tf.config.set_visible_devices([seen[index] for index in indices], "GPU")
    prepare_devices(names, use or GpuUse())
    return names


def describe_devices(names: Sequence[str] = ()) -> str:
    """Describes where a node in this process computes, for the user; empty on a machine without GPUs, with one device.

    Args:
      names: the node's devices; by default the one that TensorFlow takes by itself.
    """
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    names = names or ["GPU:0" if gpus else "CPU:0"]
    if gpus:
        models = [tf.config.experimental.get_device_details(gpu).get("device_name", "?") for gpu in gpus]
        which = os.environ.get("CUDA_VISIBLE_DEVICES")
        numbers = f", CUDA_VISIBLE_DEVICES {which}" if which else ""
        return f"computes on {', '.join(names)} ({', '.join(models)}{numbers})"
    here = len(find_gpus().gpus)
    if here and not gpus_are_hidden() and not tf.config.list_physical_devices("GPU"):
        return f"computes on the CPU, because TensorFlow sees none of {here} GPU(s): {why_unseen()}"
    return f"computes on {', '.join(names)}" if here or len(names) > 1 else ""


def prepare_devices(names: Sequence[str], use: GpuUse | None = None) -> None:
    """Initializes those devices in this process; must come before any other TensorFlow operation in it.

    One GPU for several names is divided evenly.

    Args:
      names: the devices.
      use: how the process uses GPUs; None where that was set already.

    Raises:
      CallboardError: TensorFlow is already initialized, with fewer devices.
    """
    import tensorflow as tf

    if use is not None:
        tf.config.experimental.enable_tensor_float_32_execution(use.tf32)
    memory = None if use is None else use.memory
    try:
        gpus = tf.config.get_visible_devices("GPU")
        wanted = sum(name.startswith("GPU") for name in names)
        for gpu in gpus:
            if memory is not None or wanted > len(gpus):
                _divide(gpu, max(1, wanted // len(gpus)), memory)
            elif not tf.config.get_logical_device_configuration(gpu):
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

    with contextlib.suppress(RuntimeError):  # It was used already.
        tf.config.set_visible_devices([], "GPU")


def make_strategy(names: Sequence[str], workers: Sequence[str] = (), rank: int = 0) -> tf.distribute.Strategy:
    """Makes a learner's strategy over its devices; must come before any other TensorFlow operation in the process.

    Args:
      names: the learner's devices, see `take_devices`.
      workers: `host:port` of every learner, reserved for the collectives between them, if there are several.
      rank: this learner's index among them.
    """
    import tensorflow as tf

    prepare_devices(names)
    if len(names) > 1 or len(workers) > 1 or tf.config.get_visible_devices("GPU"):
        # For a function on several devices, and a GPU is one besides the processor, this pass of TensorFlow 2.12 drops
        # control edges from reads of variables to their updates: at times SAC's policy learned from a pair of critics
        # of which one was already updated.
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
    first = "GPU:0" if tf.config.get_visible_devices("GPU") else "CPU:0"
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


def _divide(gpu: Any, parts: int, memory: float | None) -> None:
    """Makes logical devices of a GPU, each with the same part of so many GB, or of most of its memory."""
    import tensorflow as tf

    if len(tf.config.get_logical_device_configuration(gpu) or []) != parts:
        size = min((one.bytes for one in find_gpus().gpus), default=0) or _UNKNOWN_BYTES
        size = int(size * _DIVIDED) if memory is None else int(memory * 1e9)
        part = tf.config.LogicalDeviceConfiguration(memory_limit=(size // parts) >> 20)
        tf.config.set_logical_device_configuration(gpu, [part] * parts)
