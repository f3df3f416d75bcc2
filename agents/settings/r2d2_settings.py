"""Hyperparameters of R2D2."""

import dataclasses

from ...networks.network_settings import RecurrentQNetworkSettings
from ...settings.setting_types import NonNegativeInt, PositiveInt, UnitInterval
from .bonus_settings import RewardBonusSettings
from .optimizer_settings import OptimizerSettings
from .shared_settings import ExplorationSettings, ObservationSettings, PrioritizedReplaySettings, RewardSettings


@dataclasses.dataclass(frozen=True)
class R2D2Settings(ObservationSettings, RewardSettings, ExplorationSettings, RewardBonusSettings):
    """Hyperparameters of R2D2.  Defaults are for one machine; the recipe `r2d2-atari` has the paper's (table 2).

    The paper's settings, for 256 actors and 10 billion frames, are too large for a machine without a GPU, and with them
    nothing is learned within a million steps, since the target network is first updated after millions.  Here
    sequences, batches, layers and the discount are smaller, the learning rate is larger, and the target network is
    updated more often.  Returns, priorities, exploration and value rescaling are the paper's.  docs/defaults.md
    compares all defaults with the papers'.

    Attributes:
      burn_in: transitions at the start of a sequence that only refresh the stored recurrent state.
      trace_length: transitions after the burn-in, which are learned from.
      period: steps of an environment from the start of one sequence to the start of the next.
      n_step: transitions in a return (n); fewer at the end of a sequence.
      batch_size: sequences in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      priority_eta: η, weight of the largest TD error in a priority; the mean TD error has weight 1 - η.
      discount: γ.
      normalize_rewards: see `RewardSettings`; not in the paper.
      target_update_period: learner steps between updates of the target network.
      rescale_values: whether the network learns rescaled values h(Q) instead of Q.
      optimizer: see `OptimizerSettings`.  `epsilon` and `max_gradient_norm` apply to gradients of a loss that is a sum
        over the `trace_length` steps of a sequence and a mean over sequences, as in the authors' published code (SEED
        RL).
      replay: see `PrioritizedReplaySettings`; its items are sequences.  In the paper actors and learner run freely.
      network: see `RecurrentQNetworkSettings`.
    """

    burn_in: NonNegativeInt = 20
    trace_length: PositiveInt = 40
    period: PositiveInt = 20
    n_step: PositiveInt = 5
    batch_size: PositiveInt = 32
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt = 1
    priority_eta: UnitInterval = 0.9
    discount: UnitInterval = 0.99
    normalize_rewards: bool = True
    target_update_period: PositiveInt = 100
    rescale_values: bool = True
    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=1e-3, epsilon=1e-3, max_gradient_norm=40.0)
    replay: PrioritizedReplaySettings = PrioritizedReplaySettings(
        size=20_000, min_size=200, samples_per_insert=32.0, priority_exponent=0.9, importance_exponent=0.6
    )
    network: RecurrentQNetworkSettings = RecurrentQNetworkSettings(
        hidden_sizes=(128, 128), activation="relu", lstm_size=128, stream_size=128
    )
