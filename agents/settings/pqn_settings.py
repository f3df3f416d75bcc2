"""Hyperparameters of PQN."""

import dataclasses

from ...networks.network_settings import RecurrentQNetworkSettings
from ...settings.setting_types import PositiveInt, UnitInterval
from .optimizer_settings import OptimizerSettings
from .shared_settings import ExplorationSettings, IterationSettings


@dataclasses.dataclass(frozen=True)
class PqnSettings(IterationSettings, ExplorationSettings):
    """Hyperparameters of PQN.  docs/defaults.md compares all defaults with the paper's.

    Attributes:
      return_lambda: λ of the returns: 0 for one step, 1 for all steps of a sequence.
      normalize_rewards: see `RewardSettings`; not in the paper.
      optimizer: see `OptimizerSettings`.  The paper's is RAdam.  The learning rate changes from one iteration to the
        next.
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      network: see `RecurrentQNetworkSettings`.  Without `layer_norm` learning may diverge: it takes the place of the
        target network.
    """

    unroll_length: PositiveInt = 32
    batch_size: PositiveInt = 32
    epochs: PositiveInt = 4
    minibatches: PositiveInt = 8
    return_lambda: UnitInterval = 0.65
    normalize_rewards: bool = True
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=5e-4, learning_rate_decay=True, epsilon=1e-5, max_gradient_norm=10.0
    )
    network: RecurrentQNetworkSettings = RecurrentQNetworkSettings(
        core="none",
        previous_inputs=False,
        hidden_sizes=(128, 128),
        activation="relu",
        layer_norm=True,
        lstm_size=128,
        dueling=False,
        stream_size=0,
    )
