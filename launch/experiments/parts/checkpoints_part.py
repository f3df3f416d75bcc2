"""Published weights and checkpoints."""

import dataclasses

from .quantities import CheckpointCount, Seconds, StepCount


@dataclasses.dataclass(frozen=True)
class CheckpointsPart:
    """Published weights and checkpoints.

    Attributes:
      publish_every_steps: learner steps between two versions of the weights that actors get; 1 for the newest whenever
        an actor needs weights.  More send fewer weights over the network, and let actors act with older ones.
      checkpoint_every: seconds between two checkpoints of the learner.
      checkpoint_every_steps: learner steps between two checkpoints, instead of `checkpoint_every` seconds; None for
        seconds.
      keep_checkpoints: number of the newest checkpoints that are kept, besides those that a `Session` saves.  Of 1,
        none is left if it is damaged.
      checkpoint_replay: whether replay is saved too, for restarted shards and for `--resume`; not for agents that only
        learn from new data (PPO).
      replay_checkpoint_every: seconds between two checkpoints of replay; another one follows at the end of the run.
    """

    publish_every_steps: StepCount = 1
    checkpoint_every: Seconds = 30.0
    checkpoint_every_steps: StepCount | None = None
    keep_checkpoints: CheckpointCount = 2
    checkpoint_replay: bool = False
    replay_checkpoint_every: Seconds = 300.0
