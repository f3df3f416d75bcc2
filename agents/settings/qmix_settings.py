"""Hyperparameters of QMIX and VDN."""

import dataclasses

from ...networks.network_settings import Mixer, TeamNetworkSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeInt, PositiveInt, UnitInterval
from .optimizer_settings import OptimizerSettings
from .shared_settings import ExplorationSettings, RewardSettings


@dataclasses.dataclass(frozen=True)
class QmixSettings(RewardSettings, ExplorationSettings):
    """Hyperparameters of QMIX.  Defaults are for one machine; docs/qmix.md compares them with the paper's.

    Attributes:
      mixer: qmix for a monotonic mixing network that sees the state; vdn for the sum of the members' values.
      mixing_size: units of the mixing network's hidden layer.
      hypernetwork_size: units of the hidden layer of the networks that give the mixing network's weights; 0 for none.
      burn_in: transitions at the start of a sequence that only refresh the stored recurrent state.
      trace_length: transitions after the burn-in, which are learned from.
      period: steps of an environment from the start of one sequence to the start of the next.
      n_step: transitions in a return (n); fewer at the end of a sequence.
      batch_size: sequences in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      discount: γ.
      normalize_rewards: see `RewardSettings`; not in the paper.
      epsilon: exploration rate of every member of the first environment's team, or a schedule of it.  A single
        environment explores at this rate.
      target_update_period: learner steps between updates of the target networks.
      optimizer: see `OptimizerSettings`.  The loss is a sum over the `trace_length` steps of a sequence and a mean over
        sequences.
      replay: see `ReplaySettings`; its items are sequences.
      network: see `TeamNetworkSettings`.
    """

    mixer: Mixer = "qmix"
    mixing_size: PositiveInt = 32
    hypernetwork_size: NonNegativeInt = 64
    burn_in: NonNegativeInt = 10
    trace_length: PositiveInt = 20
    period: PositiveInt = 10
    n_step: PositiveInt = 1
    batch_size: PositiveInt = 32
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt = 1
    discount: UnitInterval = 0.99
    normalize_rewards: bool = True
    target_update_period: PositiveInt = 100
    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=5e-4, epsilon=1e-5, max_gradient_norm=40.0)
    replay: ReplaySettings = ReplaySettings(size=20_000, min_size=200, samples_per_insert=32.0)
    network: TeamNetworkSettings = TeamNetworkSettings(
        hidden_sizes=(64,), activation="relu", lstm_size=64, stream_size=0
    )


@dataclasses.dataclass(frozen=True)
class VdnSettings(QmixSettings):
    """Hyperparameters of VDN: QMIX's with the sum of the members' values.

    Attributes:
      mixer: vdn for the sum of the members' values, which needs no `mixing_size`, `hypernetwork_size` or state.
    """

    mixer: Mixer = "vdn"
