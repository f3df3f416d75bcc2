"""Which GPUs of a machine the process of each node sees.

A learner has as many of its own as `learner_devices` says.  Inference nodes take turns on those that no learner has,
or on all where there are none left.  The processes of other nodes see no GPU.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from ..nodes.node import LaunchedNode
from ..processes.cuda_libraries import visible_gpus
from ..processes.devices import parse_devices
from ..processes.gpu_driver import find_gpus


def place_on_gpus(nodes: Sequence[LaunchedNode], learner_devices: int | str) -> None:
    """Sets in the rules of this machine's nodes which GPUs they see; on a machine without GPUs it changes nothing.

    Args:
      nodes: all nodes that will run here, each in a process of its own.
      learner_devices: the setting of that name.
    """
    gpus = _visible_names(len(find_gpus().gpus))
    if not gpus:
        return
    users = [node for node in nodes if node.rules.uses_gpu]
    learners = [node for node in users if node.name.partition("/")[0] == "learner"]
    # Other machines may have the learners, and other GPUs.
    devices = parse_devices(learner_devices)
    indices = devices.gpu_indices(len(gpus)) if learners else []
    taken: set[int] = set()
    for number, node in enumerate(learners):
        # Those of several policies share the GPUs where there are too few.
        own = [(index + number * len(indices)) % len(gpus) for index in indices]
        if devices.kind == "GPU":
            own = indices
        taken.update(own)
        _set(node, [gpus[index] for index in own])
    free = [name for index, name in enumerate(gpus) if index not in taken] or gpus
    others = [node for node in users if node not in learners]
    for node, name in zip(others, itertools.cycle(free), strict=False):
        _set(node, [name])


def _visible_names(count: int) -> list[str]:
    """Returns the GPUs that this process sees, as `CUDA_VISIBLE_DEVICES` names them."""
    names = visible_gpus()
    return list(map(str, range(count))) if names is None else names[:count]


def _set(node: LaunchedNode, gpus: Sequence[str]) -> None:
    node.rules = dataclasses.replace(node.rules, gpus=",".join(gpus))
