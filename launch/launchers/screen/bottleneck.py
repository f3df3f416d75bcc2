"""Which part of a run the others wait for, in words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....errors import counted
from ....messages.caller_words import argument

_MUCH = 0.2
"""Fraction of the time from which on waiting is worth a remark."""

Waiting = Mapping[str, Mapping[str, float]]


class Bottleneck(NamedTuple):
    """The part of a run that limits its speed."""

    part: str
    """`actors`, `simulators`, `inference`, `replay`, `learner` or `link`; empty if no part limits the others."""
    description: str
    """A sentence."""


def find_bottleneck(waiting: Waiting, status: Mapping[str, Any]) -> Bottleneck | None:
    """Returns the bottleneck of a run; None as long as it is not known.

    Args:
      waiting: how much of the time nodes waited, see `NodeOverview.waiting`.
      status: the state of the run, for the learner steps made so far and whether simulators act.
    """
    slow = status.get("slow_weights")
    if slow:
        size, seconds, machines = slow
        less, fewer = argument("publish_every_steps", 100), argument("inference", "central")
        return Bottleneck(
            "link",
            f"weights of {size / 1e6:,.0f} MB take {seconds:.0f} s to {counted(machines, 'machine')}: the link to the "
            f"learner is the bottleneck; {less} sends them less often, {fewer} to fewer nodes",
        )
    found = _bottleneck(waiting, status.get("learner_steps", 0))
    if found is None or found.part != "actors" or "policy_server/open_episodes" not in status:
        return found
    return Bottleneck("simulators", found.description.replace("actors are the bottleneck", "it waits for simulators"))


def _bottleneck(waiting: Waiting, learner_steps: int) -> Bottleneck | None:
    if "learner" not in waiting or "actor" not in waiting:
        return None
    data = waiting["learner"].get("data", 0.0)
    actor = waiting["actor"]
    inference = actor.get("inference", 0.0)
    # Actors of central inference wait for their inference node, which waits for replay in their place.
    replay = actor.get("replay", 0.0) + min(inference, waiting.get("inference", {}).get("replay", 0.0))
    weights = actor.get("learner", 0.0)
    learner = replay + weights
    if not learner_steps and data >= _MUCH:
        return Bottleneck("actors", "the learner waits for its first batch")
    if weights >= _MUCH and data >= _MUCH:
        return Bottleneck(
            "", f"actors and learner take turns: actors wait {weights:.0%} of the time, the learner {data:.0%}"
        )
    if replay >= _MUCH and data >= _MUCH:
        return Bottleneck(
            "replay",
            f"actors wait for replay {replay:.0%} of the time and the learner {data:.0%}: replay is the bottleneck",
        )
    if learner >= _MUCH:
        return Bottleneck("learner", f"actors wait {learner:.0%} of the time: the learner is the bottleneck")
    if data >= _MUCH and inference >= _MUCH:
        return Bottleneck(
            "inference",
            f"actors wait for actions {inference:.0%} of the time, the learner for data {data:.0%}: inference is the "
            "bottleneck",
        )
    if data >= _MUCH:
        return Bottleneck("actors", f"the learner waits for data {data:.0%} of the time: actors are the bottleneck")
    return Bottleneck("", "neither actors nor the learner wait")
