"""How launchers treat each kind of node: the order of stops, restarts, time to end, and its threads."""

import dataclasses

from .experiments.parts.output_part import CheckpointsPart
from .experiments.parts.placement_part import PlacementPart
from .nodes.node import NodeRules

RULES: dict[str, NodeRules] = {
    "actor": NodeRules(stop_order=1),
    "feeder": NodeRules(stop_order=1),
    "evaluator": NodeRules(stop_order=1),
    # Actors send it their last episodes when they end.
    "recorder": NodeRules(stop_order=2, keeps=True, grace=60.0),
    "inference": NodeRules(stop_order=2, uses_gpu=True, tensorflow_threads=0),
    "learner": NodeRules(
        stop_order=3, keeps=True, restart_group="learner", grace=60.0, uses_gpu=True, tensorflow_threads=0
    ),
    # A large replay takes minutes to write.
    "replay": NodeRules(stop_order=4, keeps=True, grace=600.0, single_arena=True),
    "coordinator": NodeRules(stop_order=5, keeps=True),
}

POLICY_SERVER_RULES = dataclasses.replace(RULES["inference"], stop_order=RULES["actor"].stop_order)

# With several learners, the first ends before all others: its current step needs the others and their data.
FIRST_LEARNER_RULES = dataclasses.replace(RULES["learner"], stop_order=0)
OTHER_LEARNER_RULES = dataclasses.replace(RULES["learner"], stop_order=1, keeps=False)


def learner_rules(placement: PlacementPart, rank: int = 0, trained: str = "") -> NodeRules:
    """Returns how launchers treat a learner of an experiment, of the policy `trained` if there are several."""
    rules = RULES["learner"]
    if placement.learners > 1:
        rules = OTHER_LEARNER_RULES if rank else FIRST_LEARNER_RULES
    group = f"{rules.restart_group}/{trained}" if trained else rules.restart_group
    return dataclasses.replace(rules, restart_group=group, tensorflow_threads=placement.learner_threads)


def replay_rules(checkpoints: CheckpointsPart) -> NodeRules:
    """Returns how launchers treat a replay server; one without checkpoints has nothing to save at the end."""
    return dataclasses.replace(RULES["replay"], keeps=checkpoints.checkpoint_replay)
