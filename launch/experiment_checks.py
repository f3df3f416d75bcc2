"""Checks of an experiment's numbers of nodes, environments and devices against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..environments import environment_of_slots, environment_text
from ..errors import CallboardError
from .nodes.devices import device_count, device_names

if TYPE_CHECKING:
    from .experiment import Experiment


def check_inference(experiment: Experiment) -> None:
    """Rejects numbers of inference nodes that do not fit the kind of inference."""
    if experiment.inference == "local" and experiment.inference_nodes > 1:
        raise CallboardError(
            f"{experiment.inference_nodes} inference nodes are for central inference: leave inference_nodes out, or "
            "set inference to central"
        )
    if experiment.inference_nodes > experiment.actors:
        raise CallboardError(
            f"each of {experiment.inference_nodes} inference nodes needs an actor that it acts for: set "
            f"inference_nodes to at most {experiment.actors}"
        )


def check_shares(experiment: Experiment) -> None:
    """Rejects environments in a list that would get no slot."""
    if not isinstance(experiment.env, tuple):
        return
    weights = [entry.weight for entry in experiment.env]
    counts = {"actors * envs_per_actor": experiment.actors * experiment.envs_per_actor}
    if experiment.evaluator:
        counts["evaluation_envs"] = experiment.evaluation_envs
    for setting, count in counts.items():
        missing = set(range(len(weights))) - set(environment_of_slots(weights, count).tolist())
        if missing:
            entry = experiment.env[min(missing)]
            raise CallboardError(
                f"environment {environment_text(entry.name)!r} with weight {entry.weight:g} gets none of the "
                f"{count} slots: increase {setting}, or its weight"
            )


def check_devices(experiment: Experiment, learners_here: int) -> None:
    """Rejects devices that `learners_here` learners on this machine cannot have."""
    count = device_count(experiment.learner_devices)
    if experiment.learners > 1 and count > 1 and str(experiment.learner_devices).upper().startswith("CPU"):
        raise CallboardError(
            f"each of {experiment.learners} learners has one device of the processor, not {count}: "
            "set learner_devices to 1, or learners to 1"
        )
    if learners_here and device_names(experiment.learner_devices)[0].startswith("GPU") and learners_here > 1:
        raise CallboardError(
            f"{learners_here} learners on one machine would share its GPUs: set learners to 1, and learner_devices "
            "to a number of GPUs or all"
        )
